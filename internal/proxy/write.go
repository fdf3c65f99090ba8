package proxy

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// write serves a write to a collection that moves. It waits while a switch holds writes. If a fence refuses
// the write, the proxy makes it at the new place. The write goes on when the client is gone, as at a server:
// otherwise the proxy would count it as ended while the server still executes it.
func (p *Proxy) write(ctx context.Context, d *deployed, c command) bsoncore.Document {
	rest := newBatch(c)
	var reply bsoncore.Document
	var made place // of the last part
	doubt := false // a switch may leave it behind
	waits, cancel := p.limited(c)
	defer cancel()
	err := d.write(waits, func(ctx context.Context, at place) error {
		if rest.torn {
			reply = rest.reply(nil)
			return nil
		}
		if done, err := d.look(ctx, at, c, rest); done != nil || err != nil {
			reply = done
			return err
		}
		m, err := rest.message()
		if err != nil {
			reply = rest.reply(failure(codeIllegalOperation, err.Error()))
			return nil
		}
		if m.Body, err = at.names.Command(m.Body); err != nil {
			reply = rest.reply(failure(codeIllegalOperation, err.Error()))
			return nil
		}
		got, server, err := p.serveAt(p.life, c, at.cluster, upstream.Want{}, m)
		if err != nil {
			reply = rest.reply(unreachable(c, err))
			return nil
		}
		made = at
		p.keepCursor(c, got, cursor{cluster: at.cluster, server: server.address, names: &at.names})
		got, err = at.names.Reply(got, false)
		if err != nil {
			return err
		}
		// The cluster has made it before, maybe at the former place and behind the fence.
		if at.weak && at.epoch != never && c.bypasses() && repeated(got) {
			reply = unknown("it was made before, and the former place of the data lets such a write pass also after a switch")
			return nil
		}
		refused := rest.add(got, server.sharded)
		reply = rest.reply(got)
		if refused {
			rest.torn = rest.torn || at.weak && c.passes(got)
			return again
		}
		// A late drop meets the view of a fence, and drops that.
		doubt = succeeded(got) && (c.verb == "drop" || at.weak && c.passes(reply)) && !p.lasts(ctx, d, at)
		return nil
	})
	switch {
	case err != nil && p.waiting.Err() != nil && !rest.parted && !rest.torn:
		return shutDown(c)
	case err != nil && waits.Err() != nil && !rest.parted && !rest.torn:
		return failure(codeTimeLimit, "operation exceeded time limit: "+err.Error())
	case err != nil:
		return rest.failed(err)
	case doubt && !p.stayed(ctx, d, made):
		return unknown("the data moved meanwhile, and its former place lets such a write pass")
	}
	return reply
}

// limited bounds the wait of a command by its own limit, and not by the life of its client.
func (p *Proxy) limited(c command) (context.Context, context.CancelFunc) {
	if c.limit == 0 {
		return context.WithCancel(p.waiting)
	}
	return context.WithTimeout(p.waiting, c.limit)
}

// shutDown is the reply to a command that waits for the end of a switch when the proxy ends. Nothing was written.
func shutDown(c command) bsoncore.Document {
	if c.retryable {
		return failure(codeShutdown, "the proxy shuts down while a switch holds writes: nothing was written", labelRetryable)
	}
	return failure(codeShutdown, "the proxy shuts down while a switch holds writes: nothing was written")
}

// failed is the reply if the rest of a write could not be made because a switch did not end in time, or no
// controller reported where the data is.
func (b *batch) failed(err error) bsoncore.Document {
	switch {
	case b.torn:
		return b.reply(nil)
	// The driver sends it again with the same number, and a cluster knows the part that it has made.
	case b.c.retryable:
		return failure(codeHostUnreachable, err.Error(), labelRetryable)
	default:
		return b.reply(failure(codeHostUnreachable, err.Error()))
	}
}

// fail makes the failure of the last part as a whole the error of each statement that is left.
func (b *batch) fail(last bsoncore.Document) {
	why, _ := text(last, "errmsg")
	b.refused = nil
	for _, i := range b.left {
		b.refused = append(b.refused, bsoncore.NewDocumentBuilder().AppendInt32("index", int32(i)).
			AppendInt32("code", codeOf(last)).AppendString("errmsg", why).Build())
		if b.ordered {
			break // the client knows that the others were not tried
		}
	}
}

// lists are the commands that write a list of documents, and the name of the list.
var lists = map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}

// batch is a write whose list may be made in several parts, at different places.
type batch struct {
	c       command
	list    string // empty: the command writes as a whole
	ordered bool
	parted  bool  // it is made in parts
	torn    bool  // if the data has moved, it is not known what was written
	left    []int // if parted: indexes of the list that are not made yet
	n       int64
	changed int64 // nModified
	errors  []bsoncore.Document
	refused []bsoncore.Document // errors of the last part that a fence may have caused
	upserts []bsoncore.Document
	concern *bsoncore.Value // the first writeConcernError; nil: none
}

func newBatch(c command) *batch {
	b := &batch{c: c, list: lists[c.verb], ordered: true}
	if v, err := c.msg.Body.LookupErr("ordered"); err == nil {
		if ordered, ok := v.BooleanOK(); ok {
			b.ordered = ordered
		}
	}
	return b
}

// message returns the command with the rest of the list.
func (b *batch) message() (message.Message, error) {
	if !b.parted {
		return b.c.msg, nil
	}
	docs, err := b.c.sequence(b.list)
	if err != nil {
		return message.Message{}, err
	}
	var out []byte
	ids := bsoncore.NewArrayBuilder()
	for _, i := range b.left {
		if i >= len(docs) {
			return message.Message{}, fmt.Errorf("%s has no entry %d", b.list, i)
		}
		out = append(out, docs[i]...)
		ids.AppendInt32(int32(i))
	}
	body, err := without(b.c.msg.Body, b.list, "stmtIds", "stmtId")
	if err != nil {
		return message.Message{}, err
	}
	if b.c.retryable {
		// The server counts statements from 0, and would take the rest for the part that it has made.
		if body, err = with(body, "stmtIds", listed(ids.Build())); err != nil {
			return message.Message{}, err
		}
	}
	return message.Message{Body: body, Sequences: []message.Sequence{{Name: b.list, Docs: out}}}, nil
}

// add takes the reply for a part. It returns whether a fence may have refused some of it. If the data has
// moved, the rest must be made again, or the whole is torn.
func (b *batch) add(reply bsoncore.Document, sharded bool) bool {
	if v, err := reply.LookupErr("writeConcernError"); err == nil && b.concern == nil {
		b.concern = &v
	}
	if !succeeded(reply) {
		if !fenced(reply) {
			return false
		}
		b.torn = b.torn || !b.untouched(reply, sharded)
		return true
	}
	if b.list == "" {
		return false
	}
	errs := writeErrors(reply)
	if !b.parted && !slices.ContainsFunc(errs, func(e writeError) bool { return fenced(e.raw) }) {
		return false // whole, as it nearly always is
	}
	docs, err := b.c.sequence(b.list)
	if err != nil {
		return false
	}
	part := b.left
	if !b.parted {
		for i := range docs {
			part = append(part, i)
		}
	}
	b.n += number(reply, "n")
	b.changed += number(reply, "nModified")
	b.upserts = append(b.upserts, renumbered(reply, "upserted", part)...)
	b.refused = nil
	var again []int
	stopped := len(part)
	for _, e := range errs {
		switch {
		case e.index < 0 || e.index >= len(part):
		case fenced(e.raw):
			b.torn = b.torn || !whole(e.raw, b.c.verb, docs[part[e.index]], sharded)
			again = append(again, part[e.index])
			b.refused = append(b.refused, indexed(e.raw, part[e.index]))
			if b.ordered {
				stopped = min(stopped, e.index+1)
			}
		default:
			b.errors = append(b.errors, indexed(e.raw, part[e.index]))
		}
	}
	if b.ordered && len(again) > 0 {
		again = append(again, part[stopped:]...)
	}
	b.parted, b.left = true, again
	return len(again) > 0
}

// untouched reports whether a command that a fence refused as a whole has written nothing. An aggregation
// writes in steps, so it may have written before the fence came.
func (b *batch) untouched(refusal bsoncore.Document, sharded bool) bool {
	if b.c.verb == "aggregate" {
		return false
	}
	docs, err := b.c.sequence(b.list)
	return err == nil && !slices.ContainsFunc(docs, func(d bsoncore.Document) bool { return !whole(refusal, b.c.verb, d, sharded) })
}

// whole reports whether a statement that a fence refused has written nothing. A validator and a write block
// can stop a statement about many documents in the middle, and of several shards one can be the first. A
// server looks for a view and for the identity before it writes.
func whole(refusal bsoncore.Document, verb string, statement bsoncore.Document, sharded bool) bool {
	many := false
	switch verb {
	case "update":
		many = ofMany(statement)
	case "delete":
		many = number(statement, "limit") != 1
	}
	code := number(refusal, "code")
	return !many || !sharded && (code == codeNotOnView || code == codeWrongUUID)
}

// reply is the reply for the whole of the list, after the last part's.
func (b *batch) reply(last bsoncore.Document) bsoncore.Document {
	switch {
	// As long as the data has not moved, the refusal belongs to the application.
	case b.torn && last == nil:
		return unknown("a switch stopped it in the middle")
	// Nothing was made in parts, or the driver sends all of it again, and a cluster knows the part that it has made.
	case !b.parted, labelled(last, labelRetryable):
		return last
	// The failure of the last part must not hide what the others wrote.
	case !succeeded(last):
		b.fail(last)
	}
	// If this is the end, there was no fence: the errors belong to the application.
	errs := append(slices.Clone(b.errors), b.refused...)
	slices.SortStableFunc(errs, func(a, b bsoncore.Document) int { return int(number(a, "index") - number(b, "index")) })
	out := bsoncore.NewDocumentBuilder().AppendInt32("n", int32(b.n))
	if b.c.verb == "update" {
		out.AppendInt32("nModified", int32(b.changed))
	}
	if len(b.upserts) > 0 {
		out.AppendArray("upserted", array(b.upserts))
	}
	if len(errs) > 0 {
		out.AppendArray("writeErrors", array(errs))
	}
	if b.concern != nil {
		out.AppendValue("writeConcernError", *b.concern)
	}
	for _, key := range []string{"electionId", "opTime", "operationTime", "$clusterTime", "retriedStmtIds"} {
		if v, err := last.LookupErr(key); err == nil {
			out.AppendValue(key, v)
		}
	}
	return out.AppendDouble("ok", 1).Build()
}

func array(docs []bsoncore.Document) bsoncore.Array {
	b := bsoncore.NewArrayBuilder()
	for _, d := range docs {
		b.AppendDocument(d)
	}
	return b.Build()
}

// renumbered returns the entries of a list of a reply with the indexes of the client's list.
func renumbered(reply bsoncore.Document, key string, part []int) (out []bsoncore.Document) {
	v, err := reply.LookupErr(key)
	if err != nil {
		return nil
	}
	list, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, err := list.Values()
	if err != nil {
		return nil
	}
	for _, v := range values {
		if doc, ok := v.DocumentOK(); ok {
			if i := int(number(doc, "index")); i >= 0 && i < len(part) {
				out = append(out, indexed(doc, part[i]))
			}
		}
	}
	return out
}

// indexed returns a document with another index.
func indexed(doc bsoncore.Document, index int) bsoncore.Document {
	rest, err := without(doc, "index")
	if err != nil {
		return doc
	}
	elems, err := rest.Elements()
	if err != nil {
		return doc
	}
	b := bsoncore.NewDocumentBuilder().AppendInt32("index", int32(index))
	for _, e := range elems {
		b.AppendValue(e.Key(), e.Value())
	}
	return b.Build()
}

// without returns a document without some elements.
func without(doc bsoncore.Document, keys ...string) (bsoncore.Document, error) {
	return cut(slices.Clone(doc), keys...)
}

// cut is without in place, for a document that is nobody else's.
func cut(doc bsoncore.Document, keys ...string) (bsoncore.Document, error) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) {
		return nil, message.ErrMalformed
	}
	kept := len(doc) - len(rest)
	for len(rest) > 1 {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return nil, message.ErrMalformed
		}
		if !slices.Contains(keys, e.Key()) {
			// A batch before the first removed element stays where it is.
			if at := len(doc) - len(rest); kept != at {
				copy(doc[kept:], e)
			}
			kept += len(e)
		}
		rest = after
	}
	return bsoncore.AppendDocumentEnd(doc[:kept], 0)
}

// with returns a document with one more element.
func with(doc bsoncore.Document, key string, v bsoncore.Value) (bsoncore.Document, error) {
	out := bsoncore.AppendValueElement(slices.Clone(doc[:len(doc)-1]), key, v)
	return bsoncore.AppendDocumentEnd(out, 0)
}

// listed makes a value of a list.
func listed(list bsoncore.Array) bsoncore.Value {
	return bsoncore.Value{Type: bsoncore.TypeArray, Data: list}
}
