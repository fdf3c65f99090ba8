package proxy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// A proxy that ends hands its clients over to the other proxies. It does what a mongos does that shuts down: its
// hello says so, drivers choose another router, and commands that come all the same are served until the end.
//
// A driver that has heard of the end uses a transaction or a cursor of this proxy no longer, and waits for long
// until it gives up. So the proxy lets them end first, and aborts the transactions that are left.

// stage is how far a proxy has handed over. It only grows.
type stage int32

const (
	serving   stage = iota
	finishing       // open transactions and cursors come to their ends
	refusing        // transactions end with an error that makes drivers run them again
	leaving         // hello reports the end
)

const (
	// finishTime bounds finishing.
	finishTime = 1500 * time.Millisecond
	// refuseTime bounds refusing. A transaction whose client sends no statement within it learns of its end later.
	refuseTime = 250 * time.Millisecond
	// leaveTime bounds leaving. Drivers hear of the end at once, and then end what they have begun.
	leaveTime = 1500 * time.Millisecond
	// quietTime is the time without a command after which leaving is over.
	quietTime = 250 * time.Millisecond
	// idleCursor is the time after which no end of a cursor is waited for.
	idleCursor = time.Second
	// lookEvery is the interval at which the proxy looks whether a stage is over.
	lookEvery = 20 * time.Millisecond
)

// departure is the end of a proxy as its clients see it.
type departure struct {
	process bson.ObjectID // in topologyVersion
	stage   atomic.Int32
	told    chan struct{} // closed when hello reports the end
	running atomic.Int64  // commands under way, beside hello
	ended   atomic.Int64  // when the last one ended, in Unix nanoseconds
}

func (d *departure) at() stage { return stage(d.stage.Load()) }

// begin counts a command until done is called.
func (d *departure) begin(c command) (done func()) {
	if isHello(c) {
		return func() {}
	}
	d.running.Add(1)
	return func() {
		d.ended.Store(time.Now().UnixNano())
		d.running.Add(-1)
	}
}

// quiet reports whether no command came for a while.
func (d *departure) quiet() bool {
	return d.running.Load() == 0 && time.Since(time.Unix(0, d.ended.Load())) >= quietTime
}

// HandOver makes the clients use other proxies. It returns when they do, after 3.3 s at most, or when ctx ends. The
// proxy serves meanwhile. The caller must then call Close.
func (p *Proxy) HandOver(ctx context.Context) {
	d := &p.departure
	if !d.stage.CompareAndSwap(int32(serving), int32(finishing)) {
		return
	}
	p.log.Info("the proxy ends, and hands its clients over", slog.Int64("connections", p.open.Load()))
	p.await(ctx, finishTime, func() bool { return p.transactions.open() == 0 && !p.cursors.busy() })
	d.stage.Store(int32(refusing))
	p.await(ctx, refuseTime, func() bool { return p.transactions.open() == 0 })
	d.stage.Store(int32(leaving))
	d.ended.Store(time.Now().UnixNano())
	close(d.told)
	p.await(ctx, leaveTime, func() bool { return d.quiet() || p.open.Load() == 0 })
}

// await waits for a condition, for some time at most.
func (p *Proxy) await(ctx context.Context, most time.Duration, ok func() bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// departs ends the transaction of a statement, if the proxy is about to end. It returns nil otherwise. A commit or
// an abort is served all the same.
func (p *Proxy) departs(c command) bsoncore.Document {
	at := p.departure.at()
	if at < refusing {
		return nil
	}
	if t := p.transactions.get(c.logical(), c.number); t != nil && !c.starts {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.ended {
			p.giveUp(t)
		}
	}
	// The other code makes a driver leave the proxy at once, with all other transactions.
	code := int32(codeNoSuchTransaction)
	if at == leaving {
		code = codeShutdown
	}
	return failure(code, "the proxy shuts down: run the transaction again", labelTransient)
}

// isHello reports whether a command is about the proxy's state.
func isHello(c command) bool {
	return c.verb == "hello" || c.verb == "isMaster" || c.verb == "ismaster"
}

// longestAwait bounds the time for which a hello waits.
const longestAwait = time.Minute

// awaitChange waits while a hello wants to wait for another state of the proxy. So drivers hear of the end at once, and
// not at their next look.
func (p *Proxy) awaitChange(ctx context.Context, c command) {
	process, err := c.msg.Body.LookupErr("topologyVersion", "processId")
	id, ok := process.ObjectIDOK()
	if err != nil || !ok || id != p.departure.process {
		return
	}
	ms := min(number(c.msg.Body, "maxAwaitTimeMS"), longestAwait.Milliseconds())
	if ms <= 0 {
		return
	}
	wait := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer wait.Stop()
	select {
	case <-p.departure.told:
	case <-p.closing.Done():
	case <-ctx.Done():
	case <-wait.C:
	}
}

// streams reports whether further replies follow the reply to a hello without a request, one after each wait or change.
// Drivers that ask for that take an end without an error for a failure of the server.
func (p *Proxy) streams(c command, reply bsoncore.Document) bool {
	if !isHello(c) || c.msg.Flags&message.ExhaustAllowed == 0 || !succeeded(reply) || p.closing.Err() != nil {
		return false
	}
	_, err := c.msg.Body.LookupErr("topologyVersion", "processId")
	return err == nil && number(c.msg.Body, "maxAwaitTimeMS") > 0
}

// known returns a hello that knows the present state.
func (d *departure) known(c command) (command, error) {
	body, err := without(c.msg.Body, "topologyVersion")
	if err != nil {
		return c, err
	}
	elems, err := body.Elements()
	if err != nil {
		return c, err
	}
	b := bsoncore.NewDocumentBuilder()
	for _, e := range elems {
		b.AppendValue(e.Key(), e.Value())
	}
	c.msg.Body = d.topologyVersion(b).Build()
	return c, nil
}

// topologyVersion appends the number of the proxy's state.
func (d *departure) topologyVersion(b *bsoncore.DocumentBuilder) *bsoncore.DocumentBuilder {
	counter := int64(0)
	if d.at() == leaving {
		counter = 1
	}
	return b.AppendDocument("topologyVersion", bsoncore.NewDocumentBuilder().AppendObjectID("processId", d.process).AppendInt64("counter", counter).Build())
}

// farewell is the answer to a hello from a proxy that ends, as a mongos gives it.
func (d *departure) farewell() bsoncore.Document {
	b := bsoncore.NewDocumentBuilder().AppendDouble("ok", 0).AppendString("errmsg", "the proxy shuts down").
		AppendInt32("code", codeShutdown).AppendString("codeName", codeNames[codeShutdown])
	return d.topologyVersion(b).Build()
}

// open returns how many transactions have no outcome yet.
func (ts *transactions) open() (n int) {
	for _, t := range ts.all() {
		if !t.mu.TryLock() {
			n++ // a command is under way
			continue
		}
		if !t.ended && !t.aborted {
			n++
		}
		t.mu.Unlock()
	}
	return n
}

// busy reports whether a client reads a cursor that has an end.
func (c *cursors) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.open {
		if !one.watches && time.Since(one.used) < idleCursor {
			return true
		}
	}
	return false
}
