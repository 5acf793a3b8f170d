package house_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// optional are the interfaces that an engine may implement.
var optional = []reflect.Type{
	reflect.TypeFor[driver.Adopter](), reflect.TypeFor[driver.Breaker](), reflect.TypeFor[driver.Inspector](), reflect.TypeFor[driver.Lister](),
	reflect.TypeFor[driver.OwnerBreaker](), reflect.TypeFor[driver.Parter](), reflect.TypeFor[driver.RateLimiter](),
	reflect.TypeFor[driver.RecordKeeper](), reflect.TypeFor[driver.Resizer](), reflect.TypeFor[driver.Watcher](),
}

// TestInterfacesOnPages: the page of each engine lists the interfaces that the engine implements.
func TestInterfacesOnPages(t *testing.T) {
	list := regexp.MustCompile("implements\\s`driver\\.Engine`([^.]*)\\.")
	for page, engine := range map[string]reflect.Type{
		"files": reflect.TypeFor[*filelock.Engine](), "memory": reflect.TypeFor[*memlock.Engine](), "postgres": reflect.TypeFor[*pglock.Engine](),
		"records": reflect.TypeFor[*recordlock.Engine](), "redis": reflect.TypeFor[*redislock.Engine](), "redlock": reflect.TypeFor[*redlock.Engine](),
	} {
		text, err := os.ReadFile(filepath.Join("docs/engines", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		found := list.FindSubmatch(text)
		if found == nil {
			t.Errorf("%s.md does not list the interfaces of its engine", page)
			continue
		}
		var want []string
		for _, of := range optional {
			if engine.Implements(of) {
				want = append(want, of.Name())
			}
		}
		words := strings.FieldsFunc(string(found[1]), func(r rune) bool { return !unicode.IsLetter(r) })
		words = slices.DeleteFunc(words, func(word string) bool { return word == "and" })
		slices.Sort(words)
		if !slices.Equal(words, want) {
			t.Errorf("%s.md lists %q, and the engine implements %q", page, words, want)
		}
	}
}
