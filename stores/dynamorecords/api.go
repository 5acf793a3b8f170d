package dynamorecords

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/awslogin"
	"github.com/fencelock/fencelock/internal/httpcall"
)

// api sends requests to DynamoDB. It repeats none.
type api struct {
	url    string
	client *http.Client
	sign   func(*http.Request, string) error
	limit  time.Duration
	clock  *clock
}

// errBusy is an error after which nothing was changed, and a retry may succeed.
var errBusy = errors.New("the table is busy")

// ErrNoTable means that the table does not exist.
var ErrNoTable = fmt.Errorf("%w: there is no table (Init creates it)", driver.ErrConfig)

func (a *api) call(ctx context.Context, action string, in, out any) error {
	_, err := a.date(ctx, action, in, out)
	return err
}

// date makes a request, and returns the Date of the answer, or the zero time if it has none.
func (a *api) date(ctx context.Context, action string, in, out any) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+action)
	hash := sha256.Sum256(body)
	err = a.sign(req, hex.EncodeToString(hash[:]))
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable || errors.Is(err, awslogin.ErrNone) {
		return time.Time{}, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: sign a request: %w", errBusy, err)
	}
	sent := time.Now()
	answer, err := httpcall.Do(a.client, req)
	if err != nil {
		return time.Time{}, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(io.LimitReader(answer.Body, 32<<20))
	if err != nil {
		return time.Time{}, err
	}
	if answer.StatusCode != http.StatusOK {
		return time.Time{}, problem(answer.StatusCode, got)
	}
	if out == nil {
		out = &struct{}{}
	}
	if err := json.Unmarshal(got, out); err != nil { // such as the page of a proxy
		return time.Time{}, fmt.Errorf("the answer is not one of DynamoDB: %w", err)
	}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err == nil {
		a.clock.note(date, sent)
	}
	return date, nil
}

// problem returns the error of an answer other than 200.
func problem(status int, body []byte) error {
	var answer struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &answer) // a proxy's answer is not JSON
	_, kind, ok := strings.Cut(answer.Type, "#")
	if !ok {
		kind = answer.Type
	}
	text := strings.TrimRight(fmt.Sprintf("%d %s: %s", status, kind, answer.Message), " :")
	switch kind {
	case "ConditionalCheckFailedException":
		return driver.ErrConflict
	case "ResourceNotFoundException":
		return ErrNoTable
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "TransactionConflictException",
		"ResourceInUseException", "LimitExceededException", "ExpiredTokenException":
		return fmt.Errorf("%w: %s", errBusy, text)
	}
	if status/100 == 5 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		return errors.New(text) // of DynamoDB, or of a proxy
	}
	hint := ""
	switch kind {
	case "AccessDeniedException":
		hint = " (the login needs dynamodb:DescribeTable, GetItem, PutItem and Scan on the table)"
	case "UnrecognizedClientException", "IncompleteSignatureException":
		hint = " (check the login)"
	case "InvalidSignatureException":
		hint = " (check the login, and this host's clock)"
	}
	return fmt.Errorf("%w: DynamoDB answers %s%s", driver.ErrConfig, text, hint)
}

// clock computes bounds of the store's clock, in whole seconds, from the Date of the last answer.
type clock struct {
	mu         sync.Mutex // guards the fields below
	date       time.Time
	sent, came time.Time // before and after the answer, by the clock of this host
}

func (c *clock) note(date, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.After(c.sent) {
		c.date, c.sent, c.came = date, sent, time.Now()
	}
}

// A reading that is older than fresh is not used for an expiry: a host may have been suspended, which
// its monotonic clock does not show.
const fresh = time.Minute

func (c *clock) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.sent.IsZero() && time.Since(c.sent) < fresh && time.Now().Round(0).Sub(c.sent.Round(0)) < fresh
}

// earliest returns a lower bound of now.
func (c *clock) earliest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.date.Add(time.Since(c.came)).Unix()
}

// latest returns an upper bound of now.
func (c *clock) latest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.date.Add(time.Second+time.Since(c.sent)).Unix() + 1
}
