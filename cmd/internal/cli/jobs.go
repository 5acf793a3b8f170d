//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
)

// jobsCmd is the verb jobs, for the jobs of package cron and of run --tick.
type jobsCmd struct {
	First  string // a prefix of job names, or one of the words below
	Name   string // after pause and resume the name of a job, after list a prefix
	Reason string
}

// Words that First may be instead of a prefix.
const (
	listJobs  = "list" // for a prefix that is itself one of these words
	pauseJob  = "pause"
	resumeJob = "resume"
)

func newJobs(a *App) *cobra.Command {
	c := new(jobsCmd)
	cmd := &cobra.Command{
		Use: "jobs [flags] [PREFIX] [NAME]", GroupID: SeeLocks, Short: "List, pause and resume scheduled jobs (run --tick).",
		Long: `Prints a line for each job of "run --tick" and of the Go package cron. TICK is the newest tick (scheduled time) that a host has claimed or attempted. STATE, HOST, STARTED, TOOK and NOTE describe the last run: starting, running, ok, failed, lost if it ended without a report, or unstarted if its command did not start. NEXT is the next tick, which a job of "run --tick" does not report. Times are in UTC.

pause stops a job on all hosts until resume. A run in progress continues. Ticks during the pause are skipped. Redlock stores no records, so its jobs cannot be listed.`,
		Example: `fencelock jobs
fencelock jobs --json | jq -r 'select(.last.state == "failed").job'
fencelock jobs pause nightly --reason "disk full"
fencelock jobs resume nightly
fencelock jobs list pause-`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{
				{"PREFIX", "Show only jobs whose names start with this. Or one of the words pause, resume and list, which NAME follows."},
				{"NAME", "After pause and resume: the job. After list: a prefix, which may be one of these words."},
			}),
			ExitCodes: Table([]Row{{"1", "no job of that NAME is known"}}),
		},
		Args: Arguments(&c.First, &c.Name), ValidArgs: []string{listJobs, pauseJob, resumeJob},
		PreRunE: Checked(c.check), RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().StringVar(&c.Reason, "reason", "", "With pause: `TEXT` that says why. Hosts print it when they skip a tick.")
	return cmd
}

// check validates the arguments.
func (c *jobsCmd) check() error {
	switch acts := c.First == pauseJob || c.First == resumeJob; {
	case c.Reason != "" && c.First != pauseJob:
		return errors.New("--reason can be used with pause only")
	case c.First == listJobs:
		c.First, c.Name = c.Name, ""
	case acts && c.Name == "":
		return fmt.Errorf("the name of the job is missing; to list jobs whose names start with %s, write jobs list %[1]s", c.First)
	case !acts && c.Name != "":
		return fmt.Errorf("unexpected argument %s", c.Name)
	case acts:
		return driver.CheckName(c.Name)
	}
	return nil
}

// Run prints jobs, or pauses or resumes one.
func (c *jobsCmd) Run(a *App) error {
	list, err := ask(a, func(ctx context.Context, engine driver.Engine) ([]cron.Status, error) {
		locks := fencelock.New(engine, nil)
		if c.Name != "" {
			return c.change(ctx, cron.New(locks, c.Name, nil))
		}
		return cron.List(ctx, locks, c.First)
	})
	switch {
	case c.Name != "" && (err != nil || !a.json):
		return err
	case len(list) == 0 && err == nil:
		a.detail("no job is known")
	}
	return cmp.Or(printList(a, list, jobViewOf, jobTable), err) // even with an error, list has the jobs that could be read
}

// change pauses or resumes a known job and returns its new status.
func (c *jobsCmd) change(ctx context.Context, job *cron.Job) ([]cron.Status, error) {
	s, err := job.Status(ctx)
	if err != nil {
		return nil, err
	}
	if s.Tick.IsZero() && s.Last == nil && s.Paused == nil {
		return nil, Exit(exitNotHeld, fmt.Errorf("job %s is not known\ntry: fencelock jobs", termtext.Word(c.Name)))
	}
	if c.First == pauseJob {
		err = job.Pause(ctx, c.Reason)
	} else {
		err = job.Resume(ctx)
	}
	if err != nil {
		return nil, err
	}
	s, err = job.Status(ctx)
	return []cron.Status{s}, err
}

// jobTable returns the table of jobs.
func jobTable(list []cron.Status) string {
	var rows []string
	for _, s := range list {
		last, host, took, note := cmp.Or(s.Last, &cron.Run{}), "-", "-", "-"
		if last.PID != 0 {
			host = place(driver.Identity{Host: last.Host, PID: last.PID})
		}
		if !last.Ended.IsZero() {
			took = last.Ended.Sub(last.Started).Round(time.Millisecond).String()
		}
		if last.Error != "" {
			note = termtext.Text(termtext.Line(last.Error))
		}
		if s.Paused != nil {
			note = termtext.Text(termtext.Line("paused since " + stamp(s.Paused.Since).String() + " by " + s.Paused.Host + ": " + cmp.Or(s.Paused.Reason, "no reason given")))
		}
		rows = append(rows, strings.Join([]string{termtext.Word(s.Job), stampOr(s.Tick), cmp.Or(string(last.State), "-"),
			host, stampOr(last.Started), took, stampOr(s.Next), note}, "\t"))
	}
	return columns("JOB\tTICK\tSTATE\tHOST\tSTARTED\tTOOK\tNEXT\tNOTE", rows)
}

// stampOr returns a time, or "-" if it is zero.
func stampOr(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return stamp(t).String()
}

// jobView is cron.Status as --json prints it. docs/cli-json.md documents it.
type jobView struct {
	Job    string        `json:"job"`
	Tick   stamp         `json:"tick"`             // the newest that a host has claimed or attempted
	Next   stamp         `json:"next"`             // null if the scheduler did not report it
	Last   *jobRunView   `json:"last,omitempty"`   // the run that started last
	Paused *jobPauseView `json:"paused,omitempty"` // nil: it runs at its ticks
}

// jobRunView is a run of a job.
type jobRunView struct {
	Tick    stamp  `json:"tick"`
	State   string `json:"state"` // a cron.State
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Token   int64  `json:"token"` // of its lock
	Started stamp  `json:"started"`
	Ended   stamp  `json:"ended"` // null while it runs
	Error   string `json:"error"` // of the job; "" if it succeeded
}

// jobPauseView is the pause of a job.
type jobPauseView struct {
	Reason string `json:"reason"` // as it was given; may be empty
	Host   string `json:"host"`   // where it was paused
	Since  stamp  `json:"since"`
}

// jobViewOf converts a status.
func jobViewOf(s cron.Status) jobView {
	v := jobView{Job: s.Job, Tick: stamp(s.Tick), Next: stamp(s.Next)}
	if r := s.Last; r != nil {
		v.Last = &jobRunView{stamp(r.Tick), string(r.State), r.Host, r.PID, r.Token, stamp(r.Started), stamp(r.Ended), r.Error}
	}
	if p := s.Paused; p != nil {
		v.Paused = &jobPauseView{p.Reason, p.Host, stamp(p.Since)}
	}
	return v
}
