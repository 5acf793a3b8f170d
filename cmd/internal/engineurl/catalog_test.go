//go:build unix

package engineurl

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/internal/catalog"
)

// TestCatalogSchemes: the pages show the URLs that the commands open, and no others, each with the
// command that opens it.
func TestCatalogSchemes(t *testing.T) {
	var own, all []string
	for _, e := range catalog.Engines {
		if e.All {
			all = append(all, e.Schemes...)
		} else {
			own = append(own, e.Schemes...)
		}
	}
	added := names(slices.DeleteFunc(slices.Clone(schemes), func(s scheme) bool { return s.parse != nil }))
	slices.Sort(all)
	if !slices.Equal(added, all) {
		t.Errorf("fencelock-all adds %v, the catalog has %v", added, all)
	}
	every := slices.Sorted(slices.Values(append(own, all...)))
	if got := names(schemes); !slices.Equal(got, every) {
		t.Errorf("the commands open %v, the catalog has %v", got, every)
	}
}

// names returns the names of schemes, sorted.
func names(schemes []scheme) (all []string) {
	for _, s := range schemes {
		all = append(all, s.name())
	}
	slices.Sort(all)
	return all
}
