package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be a worker process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		main()
	}
	os.Exit(m.Run())
}

// Every measure runs on a real server, little of it, with every contestant.
func TestEveryMeasure(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("install redis: ", err)
	}
	s := settings{rounds: 1, quick: true, log: t.Logf}
	for _, suite := range suites {
		r, err := compare(suite, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range r.rows {
			if _, ok := line.values[ours]; !ok {
				t.Errorf("%s: no value of ours", line.what)
			}
		}
		text := r.text()
		if !suite.inside {
			text = page("", []*report{r}, s)
		}
		for _, c := range suite.contestants {
			if !strings.Contains(text, " "+c.name+" |") {
				t.Errorf("nothing is said of %s", c.name)
			}
		}
		t.Log(text)
	}
}

func TestChoose(t *testing.T) {
	for sel, want := range map[selection]string{
		{}:                                 "redis:5 hot:3 rates:3 postgres:5 redlock3:4 redlock5:4 command:2",
		{suites: "redlock5,postgres"}:      "redlock5:4 postgres:5",
		{suites: "modes,hooks"}:            "modes:2 hooks:1",
		{measures: "crowd,alone"}:          "redis:1 postgres:2 redlock3:1 redlock5:1",
		{measures: "frozen"}:               "redlock3:1 redlock5:1",
		{contestants: "redsync,fencelock"}: "redis:5 hot:3 rates:3 postgres:5 redlock3:4 redlock5:4 command:2",
	} {
		chosen, err := sel.choose()
		var got []string
		for _, s := range chosen {
			got = append(got, fmt.Sprint(s.name, ":", len(s.measures)))
		}
		if text := strings.Join(got, " "); err != nil || text != want {
			t.Errorf("%+v: %s, %v", sel, text, err)
		}
	}
	for _, sel := range []selection{{suites: "other"}, {measures: "alone,other"}} {
		if _, err := sel.choose(); err == nil || !strings.Contains(err.Error(), "other") {
			t.Errorf("unknown: %v", err)
		}
	}
}

func TestOnly(t *testing.T) {
	var got []string
	for _, c := range redisSuite.only("redsync").contestants {
		got = append(got, c.name)
	}
	if text := strings.Join(got, " "); text != "bare minimal fencelock redsync" {
		t.Error(text)
	}
	if n := len(redisSuite.only("").contestants); n != 7 {
		t.Errorf("everybody: %d", n)
	}
}

// A server that is gone must not hang the program.
func TestAWorkerThatCannotStartIsAnError(t *testing.T) {
	srv, err := startRedis()
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{suite: redisSuite, server: srv, home: &process{addr: srv.addr()}}
	srv.stop()
	begun := time.Now()
	if _, err := a.hire(order{Contestant: ours, Job: "wait"}); err == nil {
		t.Error("a worker without a server got ready")
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("after %v", took)
	}
}

// A run of some suites leaves the sections of the others as they are.
func TestPageKeepsOtherSections(t *testing.T) {
	s := settings{rounds: 1}
	of := func(suite suite, version string) *report {
		return &report{suite: suite, version: version, load: []string{"0"}}
	}
	whole := page("", []*report{of(redisSuite, "one"), of(ratesSuite, "two")}, s)
	again := page(whole, []*report{of(ratesSuite, "three")}, s)
	if want := strings.Replace(whole, "\ntwo,", "\nthree,", 1); again != want {
		t.Errorf("got:\n%s\nwant:\n%s", again, want)
	}
}
