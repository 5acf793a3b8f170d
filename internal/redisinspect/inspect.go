// Package redisinspect finds settings of Redis servers that weaken the guarantees of locks. It
// changes no settings.
package redisinspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Server is what one master reports about itself.
type Server struct {
	Addr   string
	Info   map[string]string // nil if the user may not run INFO
	denied error             // why Info is nil
	config map[string]Setting
}

// Setting is one value of CONFIG GET, or the error of reading it.
type Setting struct {
	Value string
	Err   error
}

// settings are the settings to read. Each is read by its own command, because a server may refuse
// some of them.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag",
}

// Ask reads INFO and the settings of every master. A value that a master refuses to return stays
// unknown. If a master does not answer, Ask returns an error.
func Ask(ctx context.Context, conn redisconn.Conn) ([]Server, error) {
	answers, err := conn.Each(ctx, "INFO")
	if err != nil {
		return nil, err
	}
	var servers []Server
	for _, a := range answers {
		s := Server{Addr: a.Node, denied: a.Err, config: map[string]Setting{}}
		if a.Err == nil {
			s.Info = redisfmt.ParseInfo(a.Text)
		} else if _, refused := redisconn.Refused(a.Err); !refused {
			return nil, a.Err
		}
		servers = append(servers, s)
	}
	for _, name := range settings {
		answers, err := conn.Each(ctx, "CONFIG", "GET", name)
		if err != nil {
			return nil, err
		}
		if len(answers) != len(servers) {
			return nil, fmt.Errorf("%w: the masters changed during the inspection; try again", driver.ErrUnavailable)
		}
		for i, a := range answers {
			servers[i].config[name] = ReadSetting(a)
		}
	}
	return servers, nil
}

// ErrNoSetting means that a server does not return a setting. Some servers lack some settings, and
// managed servers hide them.
var ErrNoSetting = errors.New("the server has no such setting")

// ReadSetting parses the answer to CONFIG GET for one setting.
func ReadSetting(a redisconn.Answer) Setting {
	_, value, ok := strings.Cut(a.Text, "\n")
	switch {
	case a.Err != nil:
		return Setting{Err: a.Err}
	case !ok:
		return Setting{Err: ErrNoSetting}
	}
	return Setting{Value: strings.TrimRight(value, "\r\n")}
}

// unchecked returns the finding for a value that the user may not read. Its severity is unknown: a
// separate check covers the rights that locks need.
func unchecked(check string, err error, right string) driver.Finding {
	return inspect.Unchecked(check, err, "let the user run it for an inspection: ACL SETUSER name "+right)
}

// Rules are the assumptions of an engine that the checks depend on.
type Rules struct {
	Quarantine  bool // after a data loss the engine grants nothing until earlier leases have expired
	Cluster     bool // the servers are a Redis Cluster
	Independent bool // replicas are never promoted
	MinReplicas int  // the number of replicas that each write waits for
}

// Judge returns the findings about one server.
func (r Rules) Judge(s Server) []driver.Finding {
	if s.Info == nil {
		f := unchecked("server", s.denied, "+info")
		f.Impact = "neither this nor eviction, persistence and replicas could be checked"
		return []driver.Finding{f}
	}
	findings := []driver.Finding{r.server(s), eviction(s), r.persistence(s)}
	if !r.Independent {
		findings = append(findings, r.replicas(s))
	}
	return findings
}
