package main

import (
	"runtime/debug"
	"strings"
)

// names are the libraries whose versions the results show.
var names = map[string]string{
	"github.com/go-redsync/redsync/v4": "redsync",
	"github.com/bsm/redislock":         "bsm/redislock",
	"github.com/redis/rueidis":         "rueidis",
	"github.com/redis/go-redis/v9":     "go-redis",
	"go.etcd.io/etcd/client/v3":        "etcd client",
	"go.etcd.io/etcd/server/v3":        "etcd",
	"github.com/riverqueue/river":      "River",
	"github.com/go-co-op/gocron/v2":    "gocron",
	"github.com/lib/pq":                "lib/pq",
	"github.com/jackc/pgx/v5":          "pgx",
}

// versions are those of the libraries that take part.
func versions() map[string]string {
	all := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if name := names[m.Path]; name != "" {
			all[name] = strings.TrimPrefix(m.Version, "v")
		}
	}
	return all
}
