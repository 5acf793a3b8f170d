package history_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// envEndless makes the test binary a process that records events until it is killed.
const envEndless = "FENCELOCK_HISTORY_ENDLESS"

func TestMain(m *testing.M) {
	if os.Getenv(envEndless) == "" {
		os.Exit(m.Run())
	}
	w, err := history.FromEnv()
	if err != nil {
		panic(err)
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
		os.Exit(1)
	}()
	for i := 0; ; i++ {
		id := fmt.Sprint("a", i)
		for _, e := range []history.Event{{Kind: history.Call, Name: "n"}, {Kind: history.Grant, Name: "n", Token: int64(i) + 1}, {Kind: history.Alive}, {Kind: history.End}} {
			e.ID = id
			if err := w.Write(e); err != nil {
				panic(err)
			}
		}
	}
}

// TestKilledWriter: the file of a process that was killed can be read.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envEndless+"=1"), history.Env(dir, "w")...)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if h, err := history.Read(dir); err != nil || len(h.Acquisitions) > 100 {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	h, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Judge(history.Rules{Search: time.Minute})
	if len(h.Violations) > 0 || len(h.Workers) != 1 || h.Workers[0] != "w" {
		t.Errorf("%v, workers %+v", h.Violations, h.Workers)
	}
}

// TestWriter: events of many goroutines and two processes are joined.
func TestWriter(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for p := range 2 {
		w, err := history.Create(dir, fmt.Sprint("w", p))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close() })
		for g := range 8 {
			all.Go(func() {
				for i := range 50 {
					id := fmt.Sprintf("%d.%d.%d", p, g, i)
					for _, kind := range []string{history.Call, history.Grant, history.Alive, history.End} {
						if err := w.Write(history.Event{Kind: kind, ID: id, Name: "n", Shared: true, Token: 1}); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	all.Wait()
	h, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Acquisitions) != 800 || len(h.Waits) != 800 || len(h.Workers) != 2 {
		t.Errorf("%d acquisitions, %d waits, %d workers", len(h.Acquisitions), len(h.Waits), len(h.Workers))
	}
	for _, a := range h.Acquisitions {
		if a.Called > a.Returned || a.Returned > a.Until || a.Until > a.Ended || a.Until == 0 {
			t.Fatalf("%+v", a)
		}
	}
}

// TestNilWriter: a program that is not tested records nothing.
func TestNilWriter(t *testing.T) {
	t.Setenv("FENCELOCK_HISTORY", "")
	w, err := history.FromEnv()
	if w != nil || err != nil || w.Write(history.Event{}) != nil || w.Close() != nil {
		t.Error(w, err)
	}
}

func TestRead(t *testing.T) {
	write := func(name string, lines string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := write("1", `{"at":1000,"worker":"w","event":"birth"}
{"at":1010,"worker":"w","event":"call","id":"a","name":"n"}
{"at":1020,"worker":"w","event":"grant","id":"a","name":"n","token":"9007199254740993","shared":true,"limit":2,"min_hold":7}
{"at":1025,"worker":"w","event":"alive","id":"a"}
{"at":1030,"worker":"w","event":"call","id":"b","name":"m","try":true}
{"at":1031,"worker":"w","event":"alive","id":"a"}
{"at":1032,"worker":"w","eve`)
	second := write("2", `{"at":1050,"worker":"harness","event":"death","x":1}
{"at":1040,"worker":"w","event":"death"}
{"at":1041,"worker":"w","event":"birth"}
{"at":1042,"worker":"w","event":"call","id":"c","name":"n"}
{"at":1043,"worker":"w","event":"failed","id":"c","held":true,"text":"held"}
{"at":1044,"worker":"w","event":"grant","id":"d","name":"n","token":"7"}
{"at":1045,"worker":"w","event":"lost","id":"d","until":1044,"text":"why"}
{"at":1046,"worker":"w","event":"end","id":"d"}
{"at":1047,"worker":"w","event":"write","id":"d","name":"n","token":"7","from":1046,"value":3,"refused":true}
{"at":1048,"worker":"w","event":"wrong","text":"odd"}
{"at":1035,"event":"fault","id":"f","name":"freeze","text":"w is frozen","workers":["w"]}
{"at":1036,"event":"fault","id":"g","name":"pause","server":"s"}
{"at":1039,"event":"heal","id":"f"}
{"at":1049,"worker":"w","event":"call","id":"e","name":"n"}
`)
	h, err := history.Read(first, second)
	if err != nil {
		t.Fatal(err)
	}
	want := &history.History{
		Origin: 1000, Length: 50,
		Workers: []string{"harness", "w"},
		Acquisitions: []history.Acquisition{
			{ID: "a", Name: "n", Worker: "w", Shared: true, Limit: 2, Token: 1<<53 + 1, MinHold: 7, Called: 10, Returned: 20, Until: 31, Died: 40},
			{ID: "d", Name: "n", Worker: "w", Token: 7, Called: 44, Returned: 44, Lost: 45, Deadline: 44, Ended: 46, Cause: "why"},
		},
		Waits: []history.Wait{
			{ID: "a", Name: "n", Worker: "w", From: 10, To: 20, Granted: true},
			{ID: "b", Name: "m", Worker: "w", From: 30, To: 40, Try: true, Text: "the process died"},
			{ID: "c", Name: "n", Worker: "w", From: 42, To: 43, Held: true, Text: "held"},
			{ID: "e", Name: "n", Worker: "w", From: 49, To: 50},
		},
		Writes: []history.Event{{Kind: history.Write, ID: "d", Name: "n", Worker: "w", Token: 7, From: 46, At: 47, Value: 3, Refused: true}},
		Faults: []history.Fault{{What: "freeze", Text: "w is frozen", Workers: []string{"w"}, From: 35, To: 39}, {What: "pause", Server: "s", From: 36, To: 50}},
		Wrong:  []history.Event{{At: 48, Worker: "w", Kind: history.Wrong, Text: "odd"}},
	}
	if len(h.Events) != 20 {
		t.Errorf("%d events", len(h.Events))
	}
	if h.Events = nil; !reflect.DeepEqual(h, want) {
		t.Errorf("got  %+v\nwant %+v", h, want)
	}
	start := write("3", `{"at":1030,"event":"start"}`+"\n")
	h, err = history.Read(first, second, start)
	if a := h.Acquisitions; err != nil || h.Origin != 1030 || h.Length != 20 || a[0].Called != -20 || a[0].Ended != 0 || a[1].Deadline != 14 {
		t.Errorf("%+v, %v", h, err)
	}
	bad := write("4", "{\"at\":1}\nnot json\n")
	for _, files := range [][]string{{bad}, {filepath.Join(t.TempDir(), "none")}} {
		if _, err := history.Read(files...); err == nil {
			t.Errorf("no error for %q", files)
		}
	}
}

// TestRoundTrip: a history that was written is read as it was.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	w, err := history.Create(dir, "w")
	if err != nil {
		t.Fatal(err)
	}
	now := history.Now()
	for _, e := range []history.Event{
		{At: now, Kind: history.Start},
		{At: now + 1, Kind: history.Injected, ID: "f", Name: "pause", Server: "s", Text: "it stands still"},
		{At: now + 1, Kind: history.Call, ID: "a", Name: "n"},
		{At: now + 2, Kind: history.Grant, ID: "a", Name: "n", Token: 1<<53 + 1},
		{At: now + 3, Kind: history.Grant, ID: "b", Name: "n", Token: 1 << 53},
		{At: now + 4, Kind: history.Write, ID: "b", Name: "n", Token: 1 << 53, Refused: true},
		{At: now + 5, Kind: history.Alive, ID: "a"},
		{At: now + 5, Kind: history.Alive, ID: "b"},
		{At: now + 6, Kind: history.Lost, ID: "a", Text: "why"},
		{At: now + 7, Kind: history.Wrong, Text: "odd"},
	} {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	h, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Engine, h.Seed, h.Started, h.TTL = "redis", 7, time.Unix(1, 0).UTC(), ttl
	h.Judge(history.Rules{TwoHolders: true, Closed: ms})
	file, err := os.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	if err == nil {
		err = errors.Join(h.Write(file), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Violations) == 0 || len(h.Expected) == 0 || len(h.Losses()) == 0 {
		t.Fatalf("too little was found: %+v", h)
	}
	if again, err := history.Read(file.Name()); err != nil || !reflect.DeepEqual(h, again) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, again, h)
	}
}
