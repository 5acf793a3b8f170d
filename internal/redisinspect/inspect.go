// Package redisinspect finds settings of Redis servers that weaken the promises of locks. It
// changes nothing on them.
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

// Server is what one master says of itself.
type Server struct {
	Addr   string
	Info   map[string]string // nil without the right to ask
	denied error             // why Info is nil
	config map[string]Setting
}

// Setting is one value of CONFIG GET, or why it could not be read.
type Setting struct {
	Value string
	Err   error
}

// settings are the values an inspection reads, one at a time: a server that hides one of
// them may tell the others.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag",
}

// Ask reads INFO and the settings of every master. What is refused stays unknown; a master
// that does not answer is the error.
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

// ErrNoSetting is for a setting that is not there: some servers lack some settings, and managed ones hide them.
var ErrNoSetting = errors.New("the server has no such setting")

// ReadSetting reads an answer to CONFIG GET of one setting.
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

// unchecked is the finding of what the user may not look at. It is unknown, and no worse:
// what locks themselves need is tried apart.
func unchecked(check string, err error, right string) driver.Finding {
	return inspect.Unchecked(check, err, "let the user run it for an inspection: ACL SETUSER name "+right)
}

// Rules are what the clients of an engine count on.
type Rules struct {
	Quarantine  bool // the engine waits out what a server has forgotten
	Cluster     bool // it knows that the servers are a cluster
	Independent bool // no replica ever takes over
	MinReplicas int  // that it waits for
}

// Judge makes all the checks on one server.
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
