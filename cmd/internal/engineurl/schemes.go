//go:build unix

package engineurl

import (
	"net/url"
	"slices"
)

// A new engine declares its schemes in a file of its own, and is added to the lists below.

// schemes has every scheme.
var schemes = slices.Concat(
	fileSchemes, memorySchemes, redisSchemes, redlockSchemes, postgresSchemes, rowsSchemes, mysqlSchemes, s3Schemes, kubeSchemes,
	storeSchemes, cloudSchemes, dynamoSchemes,
)

// parts returns the parts of the schemes that are not added. They are no fields of the schemes, so that
// a program that does not test engines is smaller.
func parts() []engineParts {
	return []engineParts{
		{fileSchemes, filePart}, {redisSchemes, redisPart}, {redlockSchemes, redlockPart}, {postgresSchemes, postgresPart},
		{rowsSchemes, rowsPart}, {mysqlSchemes, mysqlPart}, {s3Schemes, s3Part}, {kubeSchemes, kubePart},
	}
}

// AddAll adds the engines that would make fencelock too large, but need no other packages. It must be called
// before the other functions.
func AddAll() {
	addClouds()
	addDynamo()
}

// engineParts are the schemes of an engine, and how to get a part of their URLs.
type engineParts struct {
	schemes []scheme
	part    func(u *url.URL, prefix string) (*Part, error)
}
