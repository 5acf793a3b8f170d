package main

import (
	"os/exec"
	"runtime/debug"
	"strings"
)

// versions are those of the libraries and servers that take part.
func versions() map[string]string {
	all := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis",
			"github.com/redis/go-redis/v9", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/server/v3",
			"github.com/riverqueue/river", "github.com/go-co-op/gocron/v2", "github.com/lib/pq", "github.com/jackc/pgx/v5":
			all[m.Path] = strings.TrimPrefix(m.Version, "v")
		}
	}
	if out, err := exec.Command("redis-server", "--version").Output(); err == nil {
		_, version, _ := strings.Cut(string(out), "v=")
		all["Redis"], _, _ = strings.Cut(version, " ")
	}
	return all
}
