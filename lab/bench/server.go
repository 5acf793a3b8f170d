package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// redisServer is a private redis-server on a free port of the loopback
// interface, without persistence, in a folder of its own.
type redisServer struct {
	port int
	dir  string
	cmd  *exec.Cmd
	conn rueidis.Client // for the counters
	info map[string]string
}

func startRedis() (server, error) {
	s, err := launchRedis()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// launchRedis starts a server with more settings.
func launchRedis(args ...string) (*redisServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return nil, err
	}
	s := &redisServer{port: port, dir: dir}
	s.cmd = exec.Command("redis-server", append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no", "--maxclients", "20000", "--loglevel", "warning"}, args...)...)
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("redis-server could not be started (install redis): %w", err)
	}
	if err := s.connect(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// connect waits until the server answers.
func (s *redisServer) connect() error {
	err := errors.New("not tried")
	for range 100 {
		s.conn, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr()}, DisableCache: true})
		if err == nil {
			s.info, err = s.section("server")
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("redis-server on port %d does not answer: %w", s.port, err)
}

func (s *redisServer) addr() string    { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }
func (s *redisServer) version() string { return "Redis " + s.info["redis_version"] }

// section reads one section of INFO.
func (s *redisServer) section(name string) (map[string]string, error) {
	text, err := s.conn.Do(context.Background(), s.conn.B().Info().Section(name).Build()).ToString()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok {
			out[key] = value
		}
	}
	return out, nil
}

func (s *redisServer) counters() (counters, error) {
	stats, err := s.section("stats")
	if err != nil {
		return counters{}, err
	}
	commands, err := s.section("commandstats")
	if err != nil {
		return counters{}, err
	}
	used, err := s.section("cpu")
	if err != nil {
		return counters{}, err
	}
	c := counters{calls: map[string]int64{}}
	for _, key := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(used[key], 64)
		c.cpu += time.Duration(seconds * float64(time.Second))
	}
	c.total, _ = strconv.ParseInt(stats["total_commands_processed"], 10, 64)
	for key, value := range commands {
		name := strings.TrimPrefix(key, "cmdstat_")
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err == nil && name != "info" {
			c.calls[name] = n
		}
	}
	return c, nil
}

func (s *redisServer) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
