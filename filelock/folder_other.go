//go:build !linux && !darwin

package filelock

import (
	"os"
	"time"
)

// A folder does nothing on this system: supported returns an error before one is opened.
type folder struct {
	path     string
	perm     *perm
	patience *patience
	f        *os.File
}

type entry struct {
	dir      bool
	modified time.Time
}

func openDirectory(string, *perm) (*folder, error) { return nil, supported() }
func makeDirectory(string, *perm) error            { return supported() }
func lookUp(string) (os.FileInfo, error)           { return nil, supported() }
func vanished(*os.File, string) (bool, error)      { return false, supported() }

func (d *folder) sub(string) (*folder, error)            { return nil, supported() }
func (d *folder) close()                                 {}
func (d *folder) pathOf(string) string                   { return d.path }
func (d *folder) openFile(string, int) (*os.File, error) { return nil, supported() }
func (d *folder) createFile(string) (*os.File, error)    { return nil, supported() }
func (d *folder) read(string, int64) ([]byte, error)     { return nil, supported() }
func (d *folder) mkdir(string) error                     { return supported() }
func (d *folder) stat(string) (entry, error)             { return entry{}, supported() }
func (d *folder) names() ([]string, error)               { return nil, supported() }
func (d *folder) list(string) ([]string, error)          { return nil, supported() }
func (d *folder) remove(string) error                    { return supported() }
func (d *folder) removeDir(string) error                 { return supported() }
func (d *folder) rename(string, string) error            { return supported() }
func (d *folder) sync() error                            { return supported() }
