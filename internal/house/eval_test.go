package house_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// oneStepEval is an eval of what fencelock prints, in one step. It succeeds if fencelock is missing
// or was killed, so the script goes on without a lock.
var oneStepEval = regexp.MustCompile(`\beval\s+["']?\$?\(\s*(\S*/)?fencelock\b`)

// TestNoOneStepEval: no page, help text or script shows it.
func TestNoOneStepEval(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("cmd/internal/cli/testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	for _, name := range slices.Concat(filesBelow(t, ".md", ".go", ".sh", ".yml", ".yaml", ".txt"), scripts) {
		if name == "internal/house/eval_test.go" {
			continue
		}
		text := readText(t, name)
		if at := oneStepEval.FindStringIndex(text); at != nil {
			t.Errorf("%s shows %q; write vars=$(fencelock ...) || exit, and eval \"$vars\" after it", name, text[at[0]:at[1]])
		}
	}
	for text, want := range map[string]bool{
		`eval "$(fencelock acquire -x a)" || exit`: true,
		`eval $(/usr/bin/fencelock acquire -x a)`:  true,
		`eval (fencelock acquire -x a)`:            true,
		`vars=$(fencelock acquire -x a) || exit`:   false,
		`eval "$vars"`:                             false,
	} {
		if oneStepEval.MatchString(text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}
