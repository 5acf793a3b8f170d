// Package evidence reads and writes the results of the programs that test fencelock.
package evidence

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A Report is the result of one measuring command, a JSON file. It has a header and the
// list that its command fills.
type Report struct {
	Header
	Suite       []Suite      `json:"suite,omitempty"`
	Mutants     []Mutants    `json:"mutants,omitempty"`
	Twins       []Twin       `json:"twins,omitempty"`
	Simulator   []Class      `json:"simulator,omitempty"`
	Explored    []Explored   `json:"explored,omitempty"`
	Walked      []Walked     `json:"walked,omitempty"`
	Nemesis     []Nemesis    `json:"nemesis,omitempty"`
	Faults      []Fault      `json:"faults,omitempty"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
	Shims       []Shim       `json:"shims,omitempty"`
}

// A Header says how the results of a file were measured.
type Header struct {
	Date     string            `json:"date"` // of the start, 2006-01-02
	Command  string            `json:"command"`
	Seconds  int64             `json:"seconds"` // how long it ran
	Cores    int               `json:"cores"`
	CPU      string            `json:"cpu"`
	Memory   string            `json:"memory"`
	Versions map[string]string `json:"versions"` // of Go, servers and peers
}

// A Fault is what one library did under one published fault.
type Fault struct {
	Scenario   string `json:"scenario"`
	Peer       string `json:"peer"` // the library of the thread
	Rewritten  bool   `json:"rewritten,omitempty"`
	Fault      string `json:"fault"`
	Thread     string `json:"thread"`
	Subject    string `json:"subject"` // the library that was tried
	Shows      bool   `json:"shows"`   // the fault showed
	Seen       string `json:"seen"`
	Millis     int64  `json:"ms"`
	AsExpected bool   `json:"as_expected"`
}

// A Comparison is when one library reported the loss of a lock, relative to the next acquisition.
type Comparison struct {
	Scenario string `json:"scenario"` // frozen, partitioned, restarted
	Subject  string `json:"subject"`
	TTL      int64  `json:"ttl_ms"`
	Takeover int64  `json:"takeover_ms"` // from the fault to the successor's acquisition; -1 is none
	Signal   int64  `json:"signal_ms"`   // from the fault to the holder's signal; -1 is none
	Overlap  int64  `json:"overlap_ms"`  // how long both considered themselves holders; negative is the margin
	Runs     int    `json:"runs"`        // of which this has the smallest margin; 0 is one run
	Seen     string `json:"seen"`
}

// A Nemesis is one run of faults on one engine.
type Nemesis struct {
	Engine       string `json:"engine"`
	Seconds      int64  `json:"seconds"`
	Acquisitions int64  `json:"acquisitions"`
	Faults       int64  `json:"faults"` // that were injected
	Violations   int64  `json:"violations"`
	Seed         uint64 `json:"seed"` // of the first round
}

// Explored is a bound within which a model's states were visited completely.
type Explored struct {
	Model      string `json:"model"`
	Bound      string `json:"bound"`
	States     int64  `json:"states"`
	Steps      int64  `json:"steps"`
	Invariants string `json:"invariants"` // of the specification, that were checked
	Millis     int64  `json:"ms"`
}

// Walked is a bound within which random walks visited a model's states.
type Walked struct {
	Model  string `json:"model"`
	Bound  string `json:"bound"`
	Walks  int64  `json:"walks"`
	Steps  int64  `json:"steps"`
	Millis int64  `json:"ms"`
}

// A Suite is one run of the conformance suite.
type Suite struct {
	Subject string `json:"subject"`
	Passed  int    `json:"passed"`
	Skipped int    `json:"skipped"` // cases of features that the engine does not have
	Failed  int    `json:"failed"`
}

// Mutants are deliberate faults, and how many of them the tests found.
type Mutants struct {
	Where string `json:"where"`
	Found int    `json:"found"`
	Total int    `json:"total"`
}

// A Twin is a comparison of the scripts of one engine with their model.
type Twin struct {
	Subject     string `json:"subject"`
	Sequences   int    `json:"sequences"`
	Differences int    `json:"differences"`
}

// A Class is one class of schedules of the simulator.
type Class struct {
	Name         string           `json:"name"`
	About        string           `json:"about"`
	Model        bool             `json:"model"` // its assumptions are those of the model
	Schedules    int64            `json:"schedules"`
	Events       int64            `json:"events"`
	Acquisitions int64            `json:"acquisitions"`
	Violations   map[string]int64 `json:"violations,omitempty"`
}

// A Shim is the test suite of another project, run on fencelock through an adapter.
type Shim struct {
	Suite       string       `json:"suite"`
	Version     string       `json:"version"`
	Engine      string       `json:"engine"`
	Passed      int          `json:"passed"`
	Failed      int          `json:"failed"`
	Skipped     int          `json:"skipped"`
	Differences []Difference `json:"differences,omitempty"`
}

// A Difference is a test of another project that fails on fencelock by design.
type Difference struct {
	Test string `json:"test"`
	Why  string `json:"why"`
}

// NewHeader returns the header of results that a command began to measure at begun and has now.
// versions are those of libraries; the servers' are added.
func NewHeader(command string, begun time.Time, versions map[string]string) Header {
	all := map[string]string{
		"Go": strings.TrimPrefix(runtime.Version(), "go"), "Redis": printed("redis-server", "v="), "PostgreSQL": printed("postgres", ") "),
		"MariaDB": printed("mariadbd", "Ver "),
	}
	maps.Copy(all, versions)
	return Header{
		Date: begun.UTC().Format(time.DateOnly), Command: command, Seconds: int64(time.Since(begun).Seconds()),
		Cores: runtime.NumCPU(), CPU: procField("/proc/cpuinfo", "model name"), Memory: memory(), Versions: all,
	}
}

// printed returns the version that a server's program prints after a mark.
func printed(program, mark string) string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	out, err := exec.Command(append(found, program)[max(0, len(found)-1)], "--version").Output()
	if err != nil {
		return "unknown"
	}
	_, after, _ := strings.Cut(string(out), mark)
	version, _, _ := strings.Cut(after, " ")
	return strings.TrimSpace(version)
}

// memory returns the machine's memory in GiB.
func memory() string {
	var kB int64
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal"), "%d kB", &kB); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d GiB", (kB+1<<19)>>20)
}

// procField returns the first value of a name in a file of lines "name: value".
func procField(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// Read reads the report in a file.
func Read(file string) (r Report, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Write writes a report to a file.
func Write(file string, r Report) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
