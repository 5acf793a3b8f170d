package pglock

// HashText is hashText, for tests outside the package.
var HashText = hashText
