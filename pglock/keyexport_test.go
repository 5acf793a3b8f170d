package pglock

// KeyID is keyID, for tests outside the package.
var KeyID = keyID
