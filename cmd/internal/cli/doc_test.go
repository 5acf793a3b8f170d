//go:build unix

package cli

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocNamesEveryVerbAndCode: the package comment, which pkg.go.dev shows, lists every verb and
// exit code.
func TestDocNamesEveryVerbAndCode(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../fencelock/doc.go")
	must(t, err)
	for _, v := range newRoot(new(App)).Commands() {
		if v.Name() != "version" && !strings.Contains(string(doc), "\n//\tfencelock "+v.Name()) {
			t.Errorf("the package comment does not contain %s", v.Name())
		}
	}
	for _, c := range slices.Concat(commonCodes, verbCodes, startCodes) {
		if c.Word != "" && !strings.Contains(string(doc), "\n//\t"+c.Word+" ") {
			t.Errorf("the package comment does not contain exit code %s", c.Word)
		}
	}
}
