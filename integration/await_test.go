package integration_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/integration/subprocess"
)

// ready waits until the process says where it listens, and then that it is ready.
func (c *child) ready(ctx context.Context) *child {
	c.t.Helper()
	c.listening(ctx)
	eventually(ctx, c.t, c.name+" is ready", func() error {
		if !c.Running() {
			c.t.Fatalf("%s ended before it was ready: %v\n%s", c.name, c.err(), subprocess.Tail(c.log, 5))
		}
		_, operator := c.addresses()
		code, body, err := getBy(ctx, c.http, "http://"+operator+"/readyz")
		if err == nil && code != http.StatusOK {
			err = errors.New(strings.TrimSpace(body))
		}
		return err
	})
	return c
}

// listening waits until the process says where it listens.
func (c *child) listening(ctx context.Context) *child {
	c.t.Helper()
	eventually(ctx, c.t, c.name+" listens", func() error {
		if !c.Running() {
			c.t.Fatalf("%s ended: %v\n%s", c.name, c.err(), subprocess.Tail(c.log, 5))
		}
		api, operator, err := subprocess.Addresses(c.log)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.api, c.operator = api, operator
		}
		return err
	})
	return c
}

// addresses are where the process listens; empty until it was waited for.
func (c *child) addresses() (api, operator string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.api, c.operator
}

// get is a GET that leaves no connection behind.
func get(ctx context.Context, url string) (code int, body string, err error) {
	return getBy(ctx, http.DefaultClient, url)
}

func getBy(ctx context.Context, client *http.Client, url string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// longestPause bounds the pause between two tries of eventually.
const longestPause = 250 * time.Millisecond

// eventually tries until it works, and fails the test when ctx ends first, by what a try said
// before that. Tries cost those whom it waits for. So they are rarer when each takes long, and in a
// long wait: a pause is a twentieth of the wait so far.
func eventually(ctx context.Context, t *testing.T, what string, try func() error) {
	t.Helper()
	said := errors.New("nothing")
	for first := time.Now(); ; {
		began := time.Now()
		err := try()
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			said = err
		}
		pause := min(max(20*time.Millisecond, time.Since(first)/20), longestPause)
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v, and the last try said: %v", what, ctx.Err(), said)
		case <-time.After(max(pause, min(2*time.Since(began), time.Second))):
		}
	}
}
