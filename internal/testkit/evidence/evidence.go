// Package evidence reads and writes the results of the programs that test fencelock.
package evidence

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// A Report is the result of one measuring command, a JSON file. It has a header and the
// list that its command fills.
type Report struct {
	Header
	Suite       []Suite      `json:"suite,omitempty"`
	Simulator   []Class      `json:"simulator,omitempty"`
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
	Seen     string `json:"seen"`
}

// A Nemesis is one run of faults on one engine.
type Nemesis struct {
	Engine       string         `json:"engine"`
	Seconds      int64          `json:"seconds"`
	Acquisitions int64          `json:"acquisitions"`
	Faults       map[string]int `json:"faults"`
	Violations   int64          `json:"violations"`
	Seed         uint64         `json:"seed"`
}

// A Suite is one run of the conformance suite.
type Suite struct {
	Subject string `json:"subject"`
	Passed  int    `json:"passed"`
	Skipped int    `json:"skipped"`
	Failed  int    `json:"failed"`
}

// A Class is one class of schedules of the simulator.
type Class struct {
	Name       string `json:"name"`
	Model      string `json:"model"` // inside or outside
	Schedules  int64  `json:"schedules"`
	Events     int64  `json:"events"`
	Grants     int64  `json:"grants"`
	Violations int64  `json:"violations"`
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
func NewHeader(command string, begun time.Time, versions map[string]string) Header {
	all := map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	for name, version := range versions {
		all[name] = version
	}
	return Header{
		Date: begun.UTC().Format(time.DateOnly), Command: command, Seconds: int64(time.Since(begun).Seconds()),
		Cores: runtime.NumCPU(), CPU: procField("/proc/cpuinfo", "model name"), Memory: memory(), Versions: all,
	}
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

// Write writes a report to a file.
func Write(file string, r Report) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
