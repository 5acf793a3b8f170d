//go:build unix

package engineurl

import "time"

// closeLimit is how long the command waits for connections to close.
const closeLimit = 500 * time.Millisecond

// closeBoth closes an engine and its client. Both wait for requests in progress, and a silent
// server must not delay the end of the program, so closeBoth waits for closeLimit at most.
func closeBoth(closeEngine func() error, closeClient func()) error {
	closed := make(chan error, 1)
	go func() { // ends after the timeouts of the client, or with the process
		err := closeEngine()
		closeClient()
		closed <- err
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeLimit):
		return nil
	}
}
