package house_test

import (
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pathless is what the files of filelock may use of the packages that reach the file system. No
// function among them opens, changes or looks at a file by its path. Other users may be able to put
// links into the directory of the locks, so only the files folder*.go do that.
var pathless = map[string][]string{
	"os": {
		"File", "FileInfo", "FileMode", "ModeSetgid", "PathError", "O_CREATE", "O_RDONLY", "O_RDWR", "O_WRONLY",
		"Geteuid", "Getpid", "Hostname", "IsNotExist", "IsPermission", "NewFile", "NewSyscallError", "SameFile",
	},
	"io/fs":         {"ErrExist", "ErrNotExist", "ErrPermission"},
	"path/filepath": {"Abs", "Base", "Clean", "Dir", "Join"},
	"syscall":       {"Stat_t"},
	"golang.org/x/sys/unix": {
		"PollFd", "SizeofInotifyEvent", "Stat_t", "Statfs_t", "Timeval",
		"ByteSliceToString", "Close", "FcntlInt", "Flock", "Fstat", "Fstatfs", "Futimes", "InotifyInit1", "InotifyRmWatch", "Kill", "NsecToTimeval", "PidfdOpen", "Poll",
	},
	"io/ioutil": {},
	"os/exec":   {},
}

// constant is what constants of packages syscall and unix are called.
var constant = regexp.MustCompile(`^[A-Z0-9_]+$`)

// byPath are the exceptions: what is outside the directory of the locks, and what changes nothing.
var byPath = map[string][]string{
	"process_linux.go": {"os.ReadDir", "os.ReadFile", "os.Stat", "filepath.Glob"}, // in /proc
	"inotify_linux.go": {"unix.InotifyAddWatch"},                                  // events in the wrong directory cause needless checks
}

// byPathIn returns the names in a file by which it could reach files by their paths.
func byPathIn(s sourceFile) (names []string) {
	packages := map[string]string{} // import paths, by name
	for _, spec := range s.file.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		if _, checked := pathless[imported]; !checked {
			continue
		}
		packages[path.Base(imported)] = imported
		if spec.Name != nil {
			names = append(names, imported+" under another name")
		}
	}
	found := map[string]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		if !ok || packages[pkg.Name] == "" {
			return true
		}
		imported, name := packages[pkg.Name], sel.Sel.Name
		system := strings.HasSuffix(imported, "unix") || imported == "syscall"
		if !slices.Contains(pathless[imported], name) && !(system && constant.MatchString(name)) {
			found[pkg.Name+"."+name] = true
		}
		return true
	})
	return append(names, slices.Sorted(maps.Keys(found))...)
}

func TestPathsInFilelock(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		base := path.Base(s.path)
		if s.folder != "filelock" || s.test {
			continue
		}
		names := byPathIn(s)
		if strings.HasPrefix(base, "folder") {
			seen["folder"] = seen["folder"] || slices.Contains(names, "unix.Openat")
			continue
		}
		for _, name := range names {
			if slices.Contains(byPath[base], name) {
				seen[base+" "+name] = true
			} else {
				t.Errorf("%s uses %s; go through a folder, so that links are not followed", s.path, name)
			}
		}
	}
	if !seen["folder"] {
		t.Error("this test does not see how folder opens files")
	}
	for base, names := range byPath {
		for _, name := range names {
			if !seen[base+" "+name] {
				t.Errorf("%s does not use %s; remove the exception", base, name)
			}
		}
	}
}
