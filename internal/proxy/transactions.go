package proxy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
)

// transaction is a transaction of a client, from its first command until its session begins the next one.
type transaction struct {
	user     *user
	number   int64
	deployed *deployed         // nil: it uses only collections that do not move
	abort    bsoncore.Document // the command that aborts it

	life   context.Context //nolint:containedctx // of its statements; an abort ends the one that runs
	cancel context.CancelFunc

	mu      sync.Mutex // held during each command, so that none overlaps with an abort
	at      place
	server  address.Address   // of a sharded cluster: the router that has it; else empty
	done    func()            // ends the write of deployed; nil: it has ended
	ended   bool              // its outcome was asked for; the answer may be asked for again
	aborted bool              // by the proxy
	answer  bsoncore.Document // of the server to the abort of the proxy; nil: it is not known
	late    bool              // a fence may let a statement of it pass after a switch
	used    time.Time
}

func (t *transaction) finish() {
	t.ended = true
	t.cancel()
	if t.done != nil {
		t.done()
		t.done = nil
	}
}

// transactions holds the latest transaction of each session.
type transactions struct {
	mu sync.Mutex
	of map[logical]*transaction // by session
	// most is the number of sessions above which ended transactions are looked for. Below
	// mostTransactions: that.
	most int
}

// mostTransactions bounds the sessions whose ended transactions are known.
const mostTransactions = 100_000

// begin replaces a session's transaction. ok is false if the session has begun a later one.
func (ts *transactions) begin(session logical, t *transaction) (before *transaction, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.of == nil {
		ts.of = map[logical]*transaction{}
	}
	before = ts.of[session]
	if before != nil && before.number > t.number {
		return before, false
	}
	ts.of[session] = t
	if len(ts.of) > max(ts.most, mostTransactions) {
		for s, one := range ts.of {
			if one.mu.TryLock() {
				// No switch waits for a transaction over collections that do not move. Its server has ended it.
				over := (one.ended || one.deployed == nil) && time.Since(one.used) > 2*longestIdle
				if over {
					one.finish()
					delete(ts.of, s)
				}
				one.mu.Unlock()
			}
		}
		// If all are live, not each further one costs a look at all others.
		ts.most = len(ts.of) * 11 / 10
	}
	return before, true
}

// latest returns the latest transaction of a session; nil: none is known.
func (ts *transactions) latest(session logical) *transaction {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.of[session]
}

// all returns the latest transactions of all sessions.
func (ts *transactions) all() []*transaction {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Collect(maps.Values(ts.of))
}

// allOf returns those of a user.
func (ts *transactions) allOf(u *user) []*transaction {
	return slices.DeleteFunc(ts.all(), func(t *transaction) bool { return t.user != u })
}

func (ts *transactions) get(session logical, number int64) *transaction {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.of[session]; t != nil && t.number == number {
		return t
	}
	return nil
}

// transact serves a command of a transaction.
func (p *Proxy) transact(ctx context.Context, c command) bsoncore.Document {
	if c.verb == "bulkWrite" {
		return failure(codeNotSupported, "the proxy does not serve bulkWrite in a transaction: use the bulk write of a collection")
	}
	ends := c.verb == "commitTransaction" || c.verb == "abortTransaction"
	if !ends {
		if reply := p.departs(c); reply != nil {
			return reply
		}
	}
	if c.starts {
		if reply := p.startTransaction(ctx, c); reply != nil {
			return reply
		}
	}
	t := p.transactions.get(c.logical(), c.number)
	if t == nil {
		if ends {
			return p.endElsewhere(ctx, c)
		}
		return noTransaction(c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = time.Now()
	if t.aborted {
		if c.verb == "abortTransaction" {
			return t.over()
		}
		return failure(codeNoSuchTransaction, "the transaction was aborted, because the data moves or one of its commands failed: run it again", labelTransient)
	}
	if !ends && c.collection != "" {
		if d := p.deployment(c); d != t.deployed && (d != nil || t.at.cluster != p.home) {
			p.giveUp(t)
			return failure(codeIllegalOperation, "a transaction cannot use collections that move with different deployments, or that do not move and are in another cluster")
		}
	}
	body := c.msg
	var mapped *names.Map // nil: the names stay
	if !ends && c.collection != "" && t.deployed != nil && p.deployment(c) == t.deployed {
		mapped = &t.at.names
		var err error
		if body.Body, err = mapped.Command(c.msg.Body); err != nil {
			p.giveUp(t) // a server ends a transaction after an error, too
			return failure(codeIllegalOperation, err.Error())
		}
	}
	base := ctx
	if ends {
		base = p.life // its outcome must be known, also without the client
		var err error
		if body, err = ofServer(body, t.server != ""); err != nil {
			return failure(codeIllegalOperation, err.Error())
		}
	}
	doing, stop := context.WithCancel(base)
	defer stop()
	if !ends {
		defer context.AfterFunc(t.life, stop)()
	}
	reply, server, err := p.exchange(doing, t.user, t.at.cluster, upstream.Want{At: t.server}, body)
	switch {
	case err != nil && c.verb == "commitTransaction":
		// The outcome is unknown, and the client asks again at the same place. It must not be aborted
		// there: an abort that comes too late would make the client run it again.
		t.finish()
		return failure(codeHostUnreachable, err.Error(), labelRetryable, labelUnknown)
	case err != nil && c.verb == "abortTransaction":
		t.finish() // the server aborts it by itself
		return failure(codeHostUnreachable, err.Error(), labelRetryable)
	case err != nil:
		// It may have been executed or not, so a commit must not follow.
		p.giveUp(t)
		return failure(codeHostUnreachable, err.Error(), labelTransient)
	}
	if server.sharded {
		t.server = server.address
	}
	switch {
	case ends:
		doubt := c.verb == "commitTransaction" && succeeded(reply) && t.late && !p.lasts(ctx, t.deployed, t.at)
		t.finish()
		if doubt && !p.stayed(ctx, t.deployed, t.at) {
			return unknown("the data moved meanwhile, and its former place lets such a transaction pass")
		}
	// The server has ended it. The driver may send its abort to another proxy, or not at all.
	case labelled(reply, labelTransient):
		t.aborted = true
		t.finish()
	case t.deployed != nil && p.refused(doing, t.deployed, t.at, reply):
		p.giveUp(t)
		return failure(codeNoSuchTransaction, "the data has moved: run the transaction again", labelTransient)
	case mapped != nil && t.at.weak && c.isWrite() && c.passes(reply):
		t.late = true
	}
	if c.verb == "getMore" && cursorOf(reply) == 0 {
		p.cursors.drop(c.user, number(c.msg.Body, "getMore"))
	}
	p.keepCursor(c, reply, cursor{cluster: t.at.cluster, server: server.address, names: mapped})
	if mapped != nil {
		reply, err = mapped.Reply(reply, false)
	}
	if err == nil {
		reply, err = t.recoverable(reply)
	}
	if err != nil {
		return failure(codeHostUnreachable, err.Error())
	}
	return reply
}

func noTransaction(c command) bsoncore.Document {
	return failure(codeNoSuchTransaction, "this proxy knows no such transaction: it may have ended, or have begun at another proxy", labelTransient)
}

// startTransaction notes a new transaction of a session. It returns a reply if that is not possible.
func (p *Proxy) startTransaction(ctx context.Context, c command) bsoncore.Document {
	t := &transaction{user: c.user, number: c.number, deployed: p.deployment(c), used: time.Now(), abort: abortOf(c)}
	t.life, t.cancel = context.WithCancel(p.life)
	// An abort must not come before the transaction knows its place.
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deployed == nil {
		t.at = place{cluster: p.home}
	} else {
		ctx, cancel := p.waits(ctx)
		defer cancel()
		at, done, err := t.deployed.enter(ctx, p.life, p.cfg.Grace, t.idle, func() { p.abort(t) })
		if err != nil {
			t.cancel()
			return failure(codeHostUnreachable, err.Error(), labelTransient)
		}
		t.at, t.done = at, done
	}
	before, ok := p.transactions.begin(c.logical(), t)
	if !ok {
		t.finish()
		return failure(codeTransactionTooOld, "the session has begun a later transaction")
	}
	if before != nil {
		// The server has ended it when the session began the next one.
		before.mu.Lock()
		defer before.mu.Unlock()
		before.finish()
	}
	return nil
}

// longestIdle is the time after which a server ends a transaction, by default. Its client has gone.
const longestIdle = 60 * time.Second

func (t *transaction) idle() bool {
	if !t.mu.TryLock() {
		return false // a command is under way
	}
	defer t.mu.Unlock()
	return time.Since(t.used) > longestIdle
}

// abort ends a transaction after the grace of a switch, or after its client has gone.
func (p *Proxy) abort(t *transaction) {
	t.cancel() // a statement that hangs must not delay the switch
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.aborted = true
	t.done = nil // the caller ends the write
	// The fence would end it all the same, but after a wait of its own.
	p.sendAbort(t)
	t.ended = true
}

// abortTimeout bounds the message that aborts a transaction.
const abortTimeout = 2 * time.Second

// giveUp aborts a transaction that the proxy cannot go on with. The caller holds t.mu.
func (p *Proxy) giveUp(t *transaction) {
	p.sendAbort(t)
	t.aborted = true
	t.finish()
}

// sendAbort aborts a transaction at its server. If that fails, the server ends it by itself, because the proxy refuses its commit.
func (p *Proxy) sendAbort(t *transaction) {
	ctx, cancel := context.WithTimeout(p.life, abortTimeout)
	defer cancel()
	t.answer, _, _ = p.exchange(ctx, t.user, t.at.cluster, upstream.Want{At: t.server}, request(t.abort))
}

// over is the reply to the abort of a transaction that is aborted. It has the time of the server, after which
// the session goes on.
func (t *transaction) over() bsoncore.Document {
	b := bsoncore.NewDocumentBuilder()
	for _, key := range []string{"operationTime", "$clusterTime"} {
		if v, err := t.answer.LookupErr(key); err == nil {
			b.AppendValue(key, v)
		}
	}
	return b.AppendDouble("ok", 1).Build()
}

// leave aborts the transactions of sessions that end. Otherwise a switch would wait for them.
func (p *Proxy) leave(c command) {
	var ended []*transaction
	switch c.verb {
	case "endSessions", "killSessions":
		ids, err := c.sequence(c.verb)
		if err != nil {
			return // the server refuses it
		}
		for _, one := range ids {
			if session, ok := sessionOf(one); ok {
				ended = append(ended, p.transactions.latest(logical{c.user, session}))
			}
		}
		if len(ids) > 0 || c.verb == "endSessions" {
			break
		}
		ended = p.transactions.allOf(c.user)
	case "killAllSessions":
		ended = p.transactions.all()
	}
	for _, t := range ended {
		if t == nil {
			continue
		}
		t.cancel()
		t.mu.Lock()
		if !t.ended {
			p.giveUp(t)
		}
		t.mu.Unlock()
	}
}

// abortOf returns the command that aborts the transaction of another command.
func abortOf(c command) bsoncore.Document {
	b := c.inherit(bsoncore.NewDocumentBuilder().AppendInt32("abortTransaction", 1))
	return b.AppendInt64("txnNumber", c.number).AppendBoolean("autocommit", false).AppendString("$db", "admin").Build()
}

// endElsewhere ends a transaction that another proxy knows: a driver that lost that proxy asks here. A
// commit must not end one that is in progress, because this proxy does not know whether all its statements
// succeeded. So it is aborted first, and a transaction that is committed refuses that.
func (p *Proxy) endElsewhere(ctx context.Context, c command) bsoncore.Document {
	var last bsoncore.Document
	// Only one cluster has it. The others answer that they know no such transaction.
	for _, cluster := range p.likely(c) {
		reply, err := p.endAt(ctx, cluster, c)
		if err != nil {
			return failure(codeHostUnreachable, err.Error(), labelRetryable, labelUnknown)
		}
		if succeeded(reply) {
			if c.verb == "commitTransaction" && p.weakAt(ctx, cluster) {
				return unknown("another proxy has committed it, and a switch may have left it behind")
			}
			return reply
		}
		// It did not happen only if each cluster is sure of that.
		if last == nil || labelled(last, labelTransient) {
			last = reply
		}
	}
	return last
}

// endAt ends a transaction of another proxy in a cluster.
func (p *Proxy) endAt(ctx context.Context, cluster *upstream.Cluster, c command) (bsoncore.Document, error) {
	sharded, err := cluster.Sharded(ctx)
	if err != nil {
		return nil, err
	}
	// A router asks the shard that the client's recoveryToken names.
	if c.verb == "commitTransaction" && !sharded {
		reply, _, err := p.exchange(ctx, c.user, cluster, upstream.Want{}, request(abortOf(c)))
		if err != nil {
			return nil, err
		}
		switch codeOf(reply) {
		case 0, codeNoSuchTransaction, codeTransactionCommitted:
		default:
			return reply, nil
		}
	}
	m, err := ofServer(c.msg, sharded)
	if err != nil {
		return nil, err
	}
	// Now it is over, and the server's answer is also true after an election.
	reply, _, err := p.exchange(ctx, c.user, cluster, upstream.Want{}, m)
	return reply, err
}

// weakAt reports whether a fence in a cluster may let a late transaction pass. This proxy knows neither the
// statements of another proxy's transaction nor its time.
func (p *Proxy) weakAt(ctx context.Context, cluster *upstream.Cluster) bool {
	return slices.ContainsFunc(p.deployed, func(d *deployed) bool {
		if !slices.Contains(d.own, cluster) {
			return false
		}
		// The class comes with the place, which this proxy may not have used yet.
		_ = d.read(ctx, func(context.Context, place) error { return nil })
		return !d.refusesLate(cluster)
	})
}
