package house_test

import (
	"fmt"
	"strings"
	"testing"
)

// cronProgram has what the blocks of docs/cron.md leave to the reader.
const cronProgram = `package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/robfigcron"
	robfig "github.com/robfig/cron/v3"
)

var (
	ctx       context.Context
	locks     *fencelock.Locker
	job       *cron.Job
	scheduled time.Time
	_         = errors.Is
)

func bill(context.Context) error { return nil }

func main() { fmt.Println("built") }
`

// electionProgram has what the blocks of docs/leader-election.md leave to the reader.
const electionProgram = `package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
)

var (
	ctx    context.Context
	engine fencelock.Engine
	locks  *fencelock.Locker
)

type service struct{ candidate *election.Candidate }

func (s *service) answer(context.Context, http.ResponseWriter, *http.Request) {}

func serve(context.Context, int64) error { return nil }

func main() { fmt.Println("built") }
`

// TestPagesBuild: the Go blocks of a page compile, each as a function, which ends with what
// stands for its block.
func TestPagesBuild(t *testing.T) {
	for page, c := range map[string]struct {
		module, program string
		ends            []string // "" is a block that is no body of a function
	}{
		"docs/cron.md":            {"cron/schedulers", cronProgram, []string{"return nil", "return err", "return err"}},
		"docs/leader-election.md": {".", electionProgram, []string{"return err", "return nil", "return nil", ""}},
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			source, n := []string{c.program}, 0
			for _, b := range readBlocks(t, page) {
				if b.language != "go" {
					continue
				}
				if n == len(c.ends) {
					t.Fatalf("%s:%d: a block that no test builds", page, b.line)
				}
				text := b.text
				if end := c.ends[n]; end != "" {
					text = fmt.Sprintf("func block%d() error {\n%s%s\n}\n", n, text, end)
				}
				source, n = append(source, text), n+1
			}
			if out := runOverlay(t, c.module, readmeDir(t), strings.Join(source, "\n")); n != len(c.ends) || out != "built\n" {
				t.Errorf("%d blocks of %d, and it prints %q", n, len(c.ends), out)
			}
		})
	}
}
