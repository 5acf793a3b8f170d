package redislock_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/redislock"
)

// BenchmarkIdleWaiters is what 100 clients cost that wait and are not served for 10 s: with a waiter
// each for 100 names of their own, or with 100 waiters each for one name. CPU is in percent of a core.
func BenchmarkIdleWaiters(b *testing.B) {
	for _, names := range []int{10_000, 1} {
		b.Run(fmt.Sprint(names, "names"), func(b *testing.B) {
			s := newScene(b)
			holder := s.engine(nil)
			name := func(i int) string { return fmt.Sprint("name", i%names) }
			for i := range names {
				s.hold(holder, request(name(i)))
			}
			var waiting []*redislock.Engine
			for i := range 100 {
				e := s.engine(nil)
				s.ready(e)
				for j := range 100 {
					s.ask(e, request(name(100*i+j)))
				}
				waiting = append(waiting, e)
				s.until("all its requests are queued", func() bool {
					n := 0
					for j := range min(names, 100) {
						n += e.Queued(name(100*i + j))
					}
					return n == 100
				})
			}
			for b.Loop() {
				s.server.Do(b, "CONFIG", "RESETSTAT")
				server, clients, begun := s.serverCPU(), processCPU(b), time.Now()
				time.Sleep(10 * time.Second)
				calls, commands := s.commands()
				took := time.Since(begun)
				share := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
				b.ReportMetric(share(s.serverCPU()-server), "%server")
				b.ReportMetric(share(processCPU(b)-clients), "%clients")
				b.ReportMetric(float64(calls)/took.Seconds(), "calls/s")
				b.ReportMetric(float64(commands)/took.Seconds(), "commands/s")
			}
			for i := range names {
				if n := s.queued(name(i)); n != 10_000/names {
					b.Errorf("%d requests are queued for %s", n, name(i))
				}
			}
			for _, e := range waiting {
				_ = e.Close()
			}
		})
	}
}

// serverCPU is how much the server has used.
func (s scene) serverCPU() (used time.Duration) {
	for line := range strings.Lines(s.server.Do(s, "INFO", "cpu")) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, _ := strconv.ParseFloat(value, 64)
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}

// processCPU is how much this process has used.
func processCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
