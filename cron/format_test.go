package cron_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/memlock"
	"github.com/google/go-cmp/cmp"
)

// storedJob is a record that version 0.1.0 stores. Later versions must understand it, because
// processes of two versions run side by side during an upgrade (docs/stability.md). The claimed
// ticks are 22:00 to 22:05 and 23:00 on the last day of 1999; the clock of a bubble begins then.
const storedJob = `{"job":"nightly","floor":"1999-12-31T21:00:00Z",` +
	`"ticks":"946677600000000000..946677900000000000 a 946681200000000000 b ","next":"2000-01-01T00:00:00Z",` +
	`"last":{"tick":"1999-12-31T23:00:00Z","state":"failed","host":"db1","pid":42,"token":7,` +
	`"started":"1999-12-31T23:00:01Z","ended":"1999-12-31T23:04:05Z","error":"exit code 3"},` +
	`"paused":{"reason":"disk full","host":"db2","since":"1999-12-31T23:30:00Z"}}`

func TestRecordOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, ctx := memlock.New(nil), t.Context()
		if _, err := engine.Records().Swap(ctx, "cron/nightly", []byte(storedJob), "", 0); err != nil {
			t.Fatal(err)
		}
		job := cron.New(fencelock.New(engine, nil), "nightly", &cron.Config{Late: 12 * time.Hour})
		at := func(hour, minute, second int) time.Time {
			return time.Date(1999, 12, 31, hour, minute, second, 0, time.UTC)
		}
		want := cron.Status{
			Job: "nightly", Tick: at(23, 0, 0), Next: at(24, 0, 0),
			Last: &cron.Run{
				Tick: at(23, 0, 0), State: cron.StateFailed, Host: "db1", PID: 42, Token: 7,
				Started: at(23, 0, 1), Ended: at(23, 4, 5), Error: "exit code 3",
			},
			Paused: &cron.Pause{Reason: "disk full", Host: "db2", Since: at(23, 30, 0)},
		}
		got, err := job.Status(ctx)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
		if err := job.Resume(ctx); err != nil { // ticks until now are skipped
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		ran := false
		run := func(context.Context) error { ran = true; return nil }
		for _, claimed := range []time.Time{at(20, 0, 0), at(22, 3, 0), at(23, 0, 0)} {
			if err := job.Tick(ctx, claimed, run); !errors.Is(err, cron.ErrSkipped) || ran {
				t.Errorf("the tick at %v: %v, and it ran: %v", claimed, err, ran)
			}
		}
		if err := job.Tick(ctx, at(25, 0, 0), run); err != nil || !ran {
			t.Errorf("a tick that nobody has claimed: %v, and it ran: %v", err, ran)
		}
		stored, err := engine.Records().Get(ctx, "cron/nightly")
		form := `^\{"job":"nightly","floor":"2000-01-01T00:00:00Z",` +
			`"ticks":"946677600000000000..946677900000000000 a 946681200000000000 b 946688400000000000 \S+ ",` +
			`("next":"[^"]+",)?"last":\{"tick":"2000-01-01T01:00:00Z","state":"ok","host":"[^"]*","pid":\d+,"token":\d+,` +
			`"started":"[^"]+Z","ended":"[^"]+Z"\}\}$`
		if err != nil || !regexp.MustCompile(form).Match(stored.Value) {
			t.Errorf("stored %s, %v, want %s", stored.Value, err, form)
		}
	})
}
