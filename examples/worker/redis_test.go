//go:build unix

package main

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

var (
	//go:embed testdata/begin.lua
	beginLua string
	//go:embed testdata/finish.lua
	finishLua string
	//go:embed testdata/putback.lua
	putBackLua string

	beginScript   = rueidis.NewLuaScript(beginLua)
	finishScript  = rueidis.NewLuaScript(finishLua)
	putBackScript = rueidis.NewLuaScript(putBackLua)
)

// The keys of the queue. Each task has a hash besides.
const (
	lastKey    = "worker:last"    // the greatest id
	todoKey    = "worker:todo"    // ids that wait
	doingKey   = "worker:doing"   // ids that were given out and are not done
	resultsKey = "worker:results" // nothing keeps a task from having two: the guard does
)

func taskKey(id int64) string { return fmt.Sprintf("worker:task:%d", id) }

// redisQueue is a queue on Redis: two lists. An id goes from one to the other in one command, so
// that a worker that dies loses nothing.
type redisQueue struct{ rdb rueidis.Client }

func openRedis(url string) (Queue, *fencelock.Locker, func(), error) {
	opts, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, nil, nil, err
	}
	rdb, err := rueidis.NewClient(opts)
	if err != nil {
		return nil, nil, nil, err
	}
	engine := redislock.New(rdb, nil)
	return redisQueue{rdb}, fencelock.New(engine, nil), func() { _ = engine.Close(); rdb.Close() }, nil
}

func (q redisQueue) Add(ctx context.Context, length time.Duration) error {
	id, err := q.rdb.Do(ctx, q.rdb.B().Incr().Key(lastKey).Build()).AsInt64()
	if err != nil {
		return err
	}
	fields := q.rdb.B().Hset().Key(taskKey(id)).FieldValue().
		FieldValue("length", strconv.FormatInt(length.Microseconds(), 10)).
		FieldValue("token", "0").FieldValue("tries", "0").Build()
	if err := q.rdb.Do(ctx, fields).Error(); err != nil {
		return err
	}
	return q.rdb.Do(ctx, q.rdb.B().Rpush().Key(todoKey).Element(strconv.FormatInt(id, 10)).Build()).Error()
}

func (q redisQueue) Next(ctx context.Context) (Task, error) {
	id, err := q.rdb.Do(ctx, q.rdb.B().Lmove().Source(todoKey).Destination(doingKey).Left().Right().Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return Task{}, errNone
	}
	if err != nil {
		return Task{}, err
	}
	us, err := q.rdb.Do(ctx, q.rdb.B().Hget().Key(taskKey(id)).Field("length").Build()).AsInt64()
	return Task{ID: id, Length: time.Duration(us) * time.Microsecond}, err
}

func (q redisQueue) Taken(ctx context.Context) ([]Task, error) {
	ids, err := q.rdb.Do(ctx, q.rdb.B().Lrange().Key(doingKey).Start(0).Stop(-1).Build()).AsIntSlice()
	tasks := make([]Task, len(ids))
	for i, id := range ids {
		tasks[i].ID = id
	}
	return tasks, err
}

func (q redisQueue) PutBack(ctx context.Context, t Task) error {
	return putBackScript.Exec(ctx, q.rdb, []string{doingKey, todoKey}, []string{strconv.FormatInt(t.ID, 10)}).Error()
}

func (q redisQueue) Begin(ctx context.Context, t Task, token int64) error {
	args := []string{strconv.FormatInt(t.ID, 10), strconv.FormatInt(token, 10)}
	tries, err := beginScript.Exec(ctx, q.rdb, []string{taskKey(t.ID), doingKey}, args).AsInt64()
	if err == nil && tries == 0 {
		return errRefused
	}
	return err
}

func (q redisQueue) Finish(ctx context.Context, t Task, token int64, result string) error {
	args := []string{strconv.FormatInt(t.ID, 10), strconv.FormatInt(token, 10), result}
	written, err := finishScript.Exec(ctx, q.rdb, []string{taskKey(t.ID), doingKey, resultsKey}, args).AsInt64()
	if err == nil && written == 0 {
		return errRefused
	}
	return err
}

func (q redisQueue) States(ctx context.Context) ([]State, error) {
	last, err := q.rdb.Do(ctx, q.rdb.B().Get().Key(lastKey).Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, err
	}
	states := make([]State, last)
	for i := range states {
		s := &states[i]
		s.ID = int64(i + 1)
		task, err := q.rdb.Do(ctx, q.rdb.B().Hmget().Key(taskKey(s.ID)).Field("tries", "token").Build()).AsIntSlice()
		if err != nil {
			return nil, err
		}
		s.Tries, s.Token = int(task[0]), task[1]
	}
	results, err := q.rdb.Do(ctx, q.rdb.B().Lrange().Key(resultsKey).Start(0).Stop(-1).Build()).AsStrSlice()
	for _, r := range results {
		var id, token int64
		if _, err := fmt.Sscan(r, &id, &token); err != nil {
			return nil, err
		}
		states[id-1].Results = append(states[id-1].Results, token)
	}
	return states, err
}
