package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisinspect"
	"github.com/google/uuid"
)

// Inspect looks for what weakens the promises of locks; see [Engine.Inspect]. The name that
// it probes with is new each time, so that two who look at once are not in each other's way.
func (c *client) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("%w: no name to probe: %w", driver.ErrUnavailable, err)
	}
	ks, err := c.keysOf("fencelock-doctor-" + id.String())
	if err != nil {
		return nil, err
	}
	probe := ks.all()
	if c.cfg.Quarantine {
		probe = append(probe, c.markerKey())
	}
	in := &redisinspect.Inspection{
		Conn: c.conn, TTL: ttl, Keys: probe, Companions: companions[:], Index: c.indexOf(""), Prefix: c.cfg.Prefix, Channel: c.channel() + "doctor-" + id.String(),
		Quarantine: c.cfg.Quarantine, MinReplicas: c.cfg.MinReplicas, ReplicaLag: c.cfg.ReplicaLag,
	}
	findings, err := in.Run(ctx)
	return findings, unavailable(err)
}
