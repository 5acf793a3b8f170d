package driver

import "context"

// Awaiter is Records that report changes, so that readers do not have to poll.
type Awaiter interface {
	Records

	// Await returns the record of key when its version differs from the given one, at once if it
	// does already. If there is no record, or it has expired, its version is empty. Await may return
	// an unchanged record, but none that is older than the given version. It blocks until ctx ends,
	// and then returns the error of ctx. Any other error is as of Get; the caller may try again.
	Await(ctx context.Context, key, version string) (Record, error)
}
