package proxy

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// write serves a write to a collection that moves. It waits while a switch holds writes. What a fence
// refuses is made again at the new place.
func (p *Proxy) write(ctx context.Context, d *deployed, c command) bsoncore.Document {
	rest := newBatch(c)
	var reply bsoncore.Document
	_, err := d.write(ctx, func(ctx context.Context, at place) error {
		if done, err := d.retried.look(ctx, p, at, c, rest); done != nil || err != nil {
			reply = done
			return err
		}
		m, err := rest.message()
		if err != nil {
			reply = failure(codeIllegalOperation, err.Error())
			return nil
		}
		if m.Body, err = at.names.Command(m.Body); err != nil {
			reply = failure(codeIllegalOperation, err.Error())
			return nil
		}
		got, server, err := p.exchange(ctx, c, at.cluster, upstream.Want{}, m)
		if err != nil {
			reply = unreachable(c, err)
			return nil
		}
		p.keepCursor(got, cursor{cluster: at.cluster, server: server.address, names: &at.names})
		got, err = at.names.Reply(got, false)
		if err != nil {
			return err
		}
		refused := rest.add(got)
		reply = rest.reply(got)
		if refused {
			return again
		}
		return nil
	})
	if err != nil {
		return notWritten(c, err)
	}
	return reply
}

// notWritten is the reply to a write that could not be made because a switch did not end in time, or no
// controller told where the data is.
func notWritten(c command, err error) bsoncore.Document {
	labels := []string{}
	if c.retryable {
		labels = append(labels, labelRetryable)
	}
	return failure(codeHostUnreachable, err.Error(), labels...)
}

// lists are the commands that write a list of documents, and the name of the list.
var lists = map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}

// batch is a write whose list may be made in several parts, at different places.
type batch struct {
	c       command
	list    string // empty: the command writes as a whole
	ordered bool
	parted  bool  // it is made in parts
	left    []int // then: indexes of the list that are not made yet
	n       int64
	changed int64 // nModified
	errors  []bsoncore.Document
	refused []bsoncore.Document // errors of the last part that a fence may have caused
	upserts []bsoncore.Document
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

// message returns the command with what is left of the list.
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

// add takes the reply for a part. It returns whether a fence may have refused some of it.
func (b *batch) add(reply bsoncore.Document) bool {
	if !succeeded(reply) {
		return fenced(codeOf(reply))
	}
	if b.list == "" {
		return false
	}
	errs := writeErrors(reply)
	if !b.parted && !slices.ContainsFunc(errs, func(e writeError) bool { return fenced(e.code) }) {
		return false // whole, as it nearly always is
	}
	part := b.left
	if !b.parted {
		docs, err := b.c.sequence(b.list)
		if err != nil {
			return false
		}
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
		case fenced(e.code):
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

// reply is the reply for the whole of the list, after the last part's.
func (b *batch) reply(last bsoncore.Document) bsoncore.Document {
	// Nothing was made in parts, or the last part failed as a whole.
	if !b.parted || !succeeded(last) {
		return last
	}
	// If this is the end, there was no fence: the errors belong to the application.
	errs := append(slices.Clone(b.errors), b.refused...)
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
	for _, key := range []string{"writeConcernError", "electionId", "opTime", "operationTime", "$clusterTime", "retriedStmtIds"} {
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
	elems, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	start, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)))
	for _, e := range elems {
		if !slices.Contains(keys, e.Key()) {
			out = append(out, e...)
		}
	}
	return bsoncore.AppendDocumentEnd(out, start)
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
