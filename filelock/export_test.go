package filelock

// What tests see of the inside.
var (
	Encode      = encode
	MaxEncoded  = maxEncoded
	FlockOwners = flockOwners
)

// SetHook calls fn once a token is durable, before it is returned.
func (e *Engine) SetHook(fn func(token int64)) { e.hook = fn }

// SetFileSystem replaces the answer to what file system a directory is on.
func SetFileSystem(fn func(dir string) (string, bool, error)) (restore func()) {
	old := fileSystem
	fileSystem = fn
	return func() { fileSystem = old }
}
