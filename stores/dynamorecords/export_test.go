package dynamorecords

const MaxRecord = maxRecord
