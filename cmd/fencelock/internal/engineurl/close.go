//go:build unix

package engineurl

import "time"

// closeLimit is how long the end of the command waits for connections to close.
const closeLimit = 500 * time.Millisecond

// closeBoth closes an engine and its client, which both wait for what is under way.
// A silent server must not keep the program from its end: what is left open is closed by
// the end of the process.
func closeBoth(closeEngine func() error, closeClient func()) error {
	closed := make(chan error, 1)
	go func() { // ends when the client's timeouts are over, or with the process
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
