//go:build unix

package engineurl

import "net/url"

// schemes has every scheme. Those without open are of stores that programs can add.
var schemes = []scheme{
	{form: "file:///path[?network=allow][&group=NAME]", open: openFile},
	{form: "mem:", open: openMemory},
	{form: "redis://[user:password@]host[:port][/db]", open: openRedis},
	{form: "rediss://[user:password@]host[:port][/db]", open: openRedis},
	{form: "redis+unix://[user:password@]/path/of/socket[?db=N]", open: openRedis},
	{form: "redis+sentinel://[user:password@]sentinel1,sentinel2,.../master[/db]", open: openRedis},
	{form: "redis+cluster://[user:password@]host1,host2,...", open: openRedis},
	{form: "redlock://[user:password@]host1,host2,host3[/db]", open: openRedlock},
	{form: "postgres://[user:password@]host[:port]/database", open: openPostgres},
	{form: "postgresql://[user:password@]host[:port]/database", open: openPostgres},
	{form: "postgres+rows://[user:password@]host[:port]/database[?table=NAME][&listen=URL]", open: openRows},
	{form: "mysql://[user:password@]host[:port]/database[?table=NAME]", open: openMySQL},
	{form: "mariadb://[user:password@]host[:port]/database[?table=NAME]", open: openMySQL},
	{form: "s3://bucket[/prefix][?region=NAME][&endpoint=https://host]", open: bucketParser(parseS3).open},
	{form: "k8s://namespace[?server=URL&ca=FILE&token-file=FILE]", open: openKube},
	{form: "etcd://[user:password@]host1,host2,...[/prefix]"},
	{form: "nats://[user:password@]host1,host2,...[/bucket]"},
	{form: "azblob://account/container[/prefix][?endpoint=https://host]"},
	{form: "gs://bucket[/prefix]"},
	{form: "dynamodb://table[?region=NAME][&endpoint=https://host]"},
}

// partsOf returns the function for parts of the URLs of a scheme, unless the scheme was added. It is no
// field of the scheme, so that a program that does not test engines is smaller.
func partsOf(scheme string) func(u *url.URL, prefix string) (*Part, error) {
	return map[string]func(u *url.URL, prefix string) (*Part, error){
		"file": filePart, "redlock": redlockPart, "k8s": kubePart, "s3": bucketParser(parseS3).part,
		"redis": redisPart, "rediss": redisPart, "redis+unix": redisPart, "redis+sentinel": redisPart, "redis+cluster": redisPart,
		"postgres": postgresPart, "postgresql": postgresPart, "postgres+rows": rowsPart, "mysql": mysqlPart, "mariadb": mysqlPart,
	}[scheme]
}

// AddAll adds the engines that would make fencelock too large, but need no other packages. It must be called
// before the other functions.
func AddAll() {
	for name, added := range map[string]scheme{
		"azblob":   {open: bucketParser(parseAzure).open, part: bucketParser(parseAzure).part},
		"gs":       {open: bucketParser(parseGoogle).open, part: bucketParser(parseGoogle).part},
		"dynamodb": {open: openDynamo, part: dynamoPart},
	} {
		s := schemeOf(name)
		s.open, s.part = added.open, added.part
	}
}
