//go:build !unix

package chaostest

import (
	"errors"
	"os"
)

func stop(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
