package regions_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/refusal"
)

// crowd is the clients in all regions. All of them know v1 only. Each secret but the shared ones has one
// writer, so that its last acknowledged state is known. A state is HOME:PAYLOAD.
type crowd struct {
	w       *world
	secrets *workload.Ledger[string]
	shared  *history
	acked   map[string]*atomic.Int64 // writes, by the region whose servers took them
	halt    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	refused map[string]int  // calls that failed and may, by reason
	failed  []string        // calls that should not have failed, reads that were wrong
	newer   map[string]bool // regions whose secrets no other region takes, because it is older
	moved   atomic.Int64    // moves after which the new owner took a write
	keep    bool            // secrets that have moved: a third region may show a deleted one for a minute
}

// own is a secret of one client.
type own struct {
	id, home, payload string
	moves             bool // home does not own it yet, as far as the client knows
	moved             bool // it moves or has moved
}

type client struct {
	*crowd
	in    *region
	name  string
	roams bool // it creates, changes and deletes secrets of other regions, too, and moves its own ones
	rng   *rand.Rand
	n     int64
	live  []own
	dead  []own // of its own region
}

// gather starts clients in each region.
func (w *world) gather(size load) *crowd {
	w.t.Helper()
	c := &crowd{w: w, secrets: workload.New[string]("secret"), acked: map[string]*atomic.Int64{}, refused: map[string]int{}, newer: map[string]bool{}, keep: size.keep}
	ctx, halt := context.WithCancel(w.ctx)
	c.halt = halt
	w.t.Cleanup(c.finish)
	for _, name := range names {
		c.acked[name] = &atomic.Int64{}
	}
	c.shared = c.share(ctx, size.shared)
	for _, name := range names {
		for i := range size.clients {
			one := &client{crowd: c, in: w.regions[name], name: fmt.Sprintf("%s%d", name, i), roams: i == 0, rng: rand.New(rand.NewPCG(uint64(i), uint64(len(name))))}
			c.every(ctx, time.Duration(size.clients)*time.Second/time.Duration(size.rate), one.step)
		}
	}
	return c
}

// every runs a client. Each step ends before the client does.
func (c *crowd) every(ctx context.Context, interval time.Duration, step func()) {
	c.clients.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				step()
			}
		}
	})
}

// finish returns when all clients have ended.
func (c *crowd) finish() {
	c.halt()
	c.clients.Wait()
}

// writes returns the number of acknowledged writes.
func (c *crowd) writes() (n int64) {
	for _, of := range c.acked {
		n += of.Load()
	}
	return n
}

// goOn waits until so many more writes are acknowledged in each of these regions.
func (c *crowd) goOn(what string, more int64, in ...string) {
	c.w.t.Helper()
	until := map[string]int64{}
	for _, name := range in {
		until[name] = c.acked[name].Load() + more
	}
	c.w.eventually(what, func() error {
		for name, least := range until {
			if now := c.acked[name].Load(); now < least {
				return fmt.Errorf("%d writes in %s, want %d", now, name, least)
			}
		}
		return nil
	})
}

func (c *crowd) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf(format, args...))
}

// at makes a call at a server of a region, and at another one if the first is down.
func (r *region) at(rng *rand.Rand, call func(secretsv1connect.SecretServiceClient) error) (err error) {
	for _, i := range rng.Perm(len(r.apis)) {
		if err = call(r.apis[i]); !notSent(err) {
			return err
		}
	}
	return err
}

// notSent reports whether a call failed before it reached a server.
func notSent(err error) bool {
	dial := new(net.OpError)
	return errors.As(err, &dial) && dial.Op == "dial"
}

// outcome is what a client knows of a write.
type outcome int

const (
	done outcome = iota
	nothing
	unknown
)

// outcomeOf notes a failed write. away means that another region than the caller's owns the record.
func (c *crowd) outcomeOf(err error, away bool) outcome {
	reason, _ := refusal.Of(err)
	code := connect.CodeOf(err)
	out, text := unknown, string(reason)
	switch {
	case err == nil:
		return done
	case notSent(err):
		out, text = nothing, "no server"
	case reason.Again(), reason == refusal.NotOwner: // the second one of a region that a secret has left, or comes to
		out = nothing
	case away && code == connect.CodeNotFound, code == connect.CodeAborted:
		out, text = nothing, code.String() // its copy has not come yet; another client was first
	case reason == refusal.OutcomeUnknown:
	case !connect.IsWireError(err):
		text = "broken connection" // the server was killed
	default:
		c.fail("a write: %v", err)
		return unknown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[text]++
	return out
}

// step is one operation: create, change, delete or read.
func (c *client) step() {
	c.n++
	switch dice := c.rng.IntN(16); {
	case dice < 2 && len(c.live) > 0:
		c.read(c.live[c.rng.IntN(len(c.live))])
	case dice < 4 || len(c.live) < 3:
		c.create()
	case dice < 6 && len(c.live) > 5:
		c.remove()
	case dice < 10 && c.roams && len(c.live) > 0:
		c.move()
	default:
		c.change(fmt.Sprint(c.n))
	}
}

// through returns the region that gets a call about a secret.
func (c *client) through(s own) *region {
	if c.roams && c.rng.IntN(2) == 0 {
		return c.w.regions[names[c.rng.IntN(len(names))]]
	}
	return c.w.regions[s.home]
}

// write makes a write. A secret whose state is unknown is not touched again: a late write could follow
// on a later one.
func (c *client) write(s own, payload string, call func(secretsv1connect.SecretServiceClient) error, through *region) outcome {
	state := ""
	if payload != "" {
		state = s.home + ":" + payload
	}
	c.secrets.Begin(s.id, state)
	out := c.outcomeOf(through.at(c.rng, call), s.moves || through.name != s.home)
	switch out {
	case done:
		c.secrets.Ack(s.id)
		c.acked[through.name].Add(1)
	case nothing:
		c.secrets.Refuse(s.id)
	case unknown:
		c.secrets.Unknown(s.id)
	}
	return out
}

func (c *client) create() {
	s := own{id: fmt.Sprintf("%s-%d", c.name, c.n), home: c.in.name}
	if c.roams {
		s.home = names[c.rng.IntN(len(names))]
	}
	again := len(c.dead) > 0 && c.rng.IntN(2) == 0
	if again {
		s = c.dead[0]
	}
	payload := fmt.Sprint(c.n)
	s.payload = payload
	out := c.write(s, payload, func(api secretsv1connect.SecretServiceClient) error {
		_, err := api.CreateSecret(c.w.ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: s.id, Secret: &secretsv1.Secret{Payload: []byte(payload), Home: s.home}}))
		return err
	}, c.in)
	if again && out != nothing {
		c.dead = c.dead[1:]
	}
	if out == done {
		c.live = append(c.live, s)
	}
}

// remove deletes one of the secrets.
func (c *client) remove() {
	if i := c.rng.IntN(len(c.live)); !c.keep || !c.live[i].moved {
		c.changeOne(i, "")
	}
}

// change writes a payload to one of the secrets.
func (c *client) change(payload string) { c.changeOne(c.rng.IntN(len(c.live)), payload) }

// changeOne writes a payload to a secret, or deletes it.
func (c *client) changeOne(i int, payload string) {
	s := c.live[i]
	out := c.write(s, payload, func(api secretsv1connect.SecretServiceClient) error {
		if payload == "" {
			_, err := api.DeleteSecret(c.w.ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: "projects/p/secrets/" + s.id}))
			return err
		}
		return set(c.w.ctx, api, s.id, payload)
	}, c.through(s))
	switch {
	case out == unknown || out == done && payload == "":
		c.live = slices.Delete(c.live, i, i+1)
		if out == done && s.home == c.in.name && !s.moved {
			c.dead = append(c.dead, s)
		}
	case out == done:
		if s.moves {
			c.moved.Add(1)
		}
		c.live[i].payload, c.live[i].moves = payload, false // only its owner takes writes
	}
}

func set(ctx context.Context, api secretsv1connect.SecretServiceClient, id, payload string) error {
	_, err := api.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/" + id, Payload: []byte(payload)}}))
	return err
}

// read looks at a secret where it is owned.
func (c *client) read(s own) {
	if s.home != c.in.name || s.moves {
		return // a client never waits for a network to read
	}
	reading, state := c.secrets.Read(s.id), ""
	err := c.in.at(c.rng, func(api secretsv1connect.SecretServiceClient) error {
		res, err := api.GetSecret(c.w.ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/" + s.id}))
		if err == nil {
			state = res.Msg.GetSecret().GetHome() + ":" + string(res.Msg.GetSecret().GetPayload())
		}
		return err
	})
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		c.outcomeOf(err, false)
		return
	}
	if err := reading.Check(state, shown); err != nil {
		c.fail("%v", err)
	}
}

func shown(state string) string { return state }

// settle waits until all regions show all secrets, and compares them with what the clients know.
func (c *crowd) settle() {
	t := c.w.t
	t.Helper()
	all, begun, last := map[string]map[string]string{}, time.Now(), ""
	c.w.eventually("all regions show the same", func() error {
		for _, name := range names {
			got, err := c.w.regions[name].list(500)
			if err != nil {
				return err
			}
			all[name] = got
		}
		for _, name := range names[1:] {
			if !maps.Equal(all[name], all[names[0]]) {
				last = difference(names[0], name, all)
				return errors.New(last)
			}
		}
		return nil
	})
	t.Logf("all regions show the same after %s; before: %s", time.Since(begun).Round(time.Millisecond), last)
	for name, shows := range all {
		seen := workload.Seen{}
		for id, state := range shows {
			if !strings.HasPrefix(id, sharedPrefix) {
				seen.Add(id, state)
			}
		}
		if err := c.secrets.Check("region "+name, seen, shown).Err(); err != nil {
			t.Error(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.failed[:min(10, len(c.failed))] {
		t.Error(text)
	}
	if n := len(c.failed); n > 0 {
		t.Errorf("%d calls failed", n)
	}
	t.Logf("%d secrets, %d of them are there; failed and may: %v", c.secrets.Len(), len(all[names[0]]), c.refused)
}

// difference describes the first secrets that two regions show differently.
func difference(a, b string, all map[string]map[string]string) string {
	ids := map[string]bool{}
	for _, of := range []string{a, b} {
		for id := range all[of] {
			if all[a][id] != all[b][id] {
				ids[id] = true
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(ids))
	var text strings.Builder
	fmt.Fprintf(&text, "%d secrets differ", len(sorted))
	for _, id := range sorted[:min(5, len(sorted))] {
		fmt.Fprintf(&text, "; %s is %q in %s and %q in %s", id, all[a][id], a, all[b][id], b)
	}
	return text.String()
}
