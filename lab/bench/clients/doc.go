// Package clients has a test of package idempotent with HTTP clients that nobody here wrote.
package clients
