// Package cron has the shape of the library's.
package cron

import (
	"context"
	"time"
)

type Job struct{}

func (j *Job) Tick(ctx context.Context, scheduled time.Time, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
func (j *Job) Now(ctx context.Context, fn func(ctx context.Context) error) error { return fn(ctx) }
