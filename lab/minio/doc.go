// Package minio has tests of locks in a bucket of MinIO, which it builds from its module, outside the
// module graph of fencelock's users.
package minio
