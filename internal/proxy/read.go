package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
)

// read serves a read of a collection that moves.
func (p *Proxy) read(ctx context.Context, d *deployed, c command) bsoncore.Document {
	return p.query(ctx, d, c, nil)
}

// query is read for a query that may be the rest of another one, by.
func (p *Proxy) query(ctx context.Context, d *deployed, c command, by *ordered) bsoncore.Document {
	want, ok := upstream.WantOf(c.preference)
	if !ok {
		return failure(codeInvalidReadPrefers, "invalid $readPreference")
	}
	watches := c.verb == "aggregate" && names.Watches(c.msg.Body)
	ctx, cancel := p.waits(ctx)
	defer cancel()
	var reply bsoncore.Document
	opened := int64(0) // the cursor of the last try
	err := d.read(ctx, func(ctx context.Context, at place) error {
		if opened != 0 {
			_ = p.endCursor(ctx, c, opened) // the server ends it by itself in the end
			opened = 0
		}
		m := c.msg
		var err error
		if m.Body, err = at.names.Command(c.msg.Body); err != nil {
			reply = failure(codeIllegalOperation, err.Error())
			return nil
		}
		want := want
		if m, err = p.fit(&want, m); err == nil {
			want, m, err = d.settle(at, c, want, m)
		}
		if err != nil {
			reply = failure(codeIllegalOperation, err.Error())
			return nil
		}
		got, server, err := p.insist(ctx, c, at.cluster, want, m)
		if err != nil {
			reply = unreachable(c, err)
			return nil
		}
		if want.Mode == upstream.Primary && succeeded(got) {
			d.settled.note(c.user, at, server.time)
		}
		held, _ := d.app.Holding()
		if reply, err = at.names.Reply(got, watches); err != nil {
			return err
		}
		// The client gets this reply if no further try comes to an end.
		opened = cursorOf(got)
		one := cursor{
			cluster: at.cluster, server: server.address, names: &at.names, moves: d, epoch: at.epoch, revision: at.revision,
			watches: watches, hides: at.hides,
		}
		p.expect(c, got, by, &one)
		p.keepCursor(c, got, one)
		// Another proxy may have acknowledged a write at the next place before this read began.
		failed := slices.Contains(movedCodes, codeOf(got))
		if failed && p.moving(ctx, d, at) || !failed && !p.current(ctx, d, at) {
			return again
		}
		// Read again until the switch is over, also if it began after this read and ended before. Then the
		// collection has its name.
		held = held || d.app.Revision() != at.revision
		if held && at.hides && !watches && lacking(c, got) {
			return again
		}
		// The hold may have been acknowledged before this cursor was known. Ask once more, after it is.
		if held, _ := d.app.Holding(); held && one.rest != nil && one.rest.by == nil && !p.readAhead(ctx, one.rest) {
			return again // its end would meet the fence
		}
		return nil
	})
	if err != nil {
		return failure(codeHostUnreachable, err.Error())
	}
	return reply
}

// lacking reports whether a reply may lack documents because the collection had no name for a moment. Then a
// server finds nothing, without an error. An aggregation can turn nothing into something, such as the results
// of $facet, or join nothing.
func lacking(c command, reply bsoncore.Document) bool {
	switch c.verb {
	case "count":
		return number(reply, "n") == 0
	case "distinct":
		v, err := reply.LookupErr("values")
		values, ok := v.ArrayOK()
		_, some := values.IndexErr(0)
		return err == nil && ok && some != nil
	case "find":
		docs, err := batchOf(reply)
		return err == nil && len(docs) == 0 && cursorOf(reply) == 0
	case "aggregate":
		return cursorOf(reply) == 0
	}
	return false
}

// keepCursor remembers the cursor of the reply to a command.
func (p *Proxy) keepCursor(c command, reply bsoncore.Document, one cursor) {
	one.user = c.user
	if id := cursorOf(reply); id != 0 {
		p.cursors.keep(id, one)
	}
}

// cursorOf returns the id of the open cursor in a reply; 0: there is none.
func cursorOf(reply bsoncore.Document) int64 {
	v, err := reply.LookupErr("cursor")
	if err != nil {
		return 0
	}
	doc, ok := v.DocumentOK()
	if !ok {
		return 0
	}
	return number(doc, "id")
}

// more reads on with a cursor, at the server that has it.
func (p *Proxy) more(ctx context.Context, cl *peer, c command) bsoncore.Document {
	id := number(c.msg.Body, "getMore")
	one, ok := p.cursors.get(c.user, id)
	if !ok {
		return failure(codeCursorNotFound, "this proxy knows no such cursor")
	}
	if one.rest != nil {
		if err := one.rest.lock(ctx); err != nil {
			return failure(codeHostUnreachable, err.Error())
		}
		defer one.rest.unlock()
		if now, ok := p.cursors.get(c.user, id); !ok || now.rest != one.rest {
			return failure(codeCursorNotFound, "another command has read on with this cursor meanwhile")
		}
		if reply := p.next(c, id, one.rest); reply != nil {
			p.cursors.touch(c.user, id)
			return reply
		}
	}
	broken := one.rest.broken()
	if one.moved() || broken {
		if reply := p.goOn(ctx, c, id, one); reply != nil {
			return reply
		}
	}
	switch {
	case one.moved():
		return p.left(ctx, c, id, one)
	case broken:
		_ = p.endCursor(ctx, c, id) // it may be gone already
		return failure(codeCursorNotFound, "a reply to this cursor was lost, or it was not used for long: read again")
	}
	m, err := one.message(c)
	if err != nil {
		return failure(codeIllegalOperation, err.Error())
	}
	var to upstream.Taker
	if out := p.passes(cl, c, one); out != nil {
		to = out
	}
	reply, _, err := p.exchangeTo(ctx, c.user, one.cluster, upstream.Want{At: one.server}, m, to)
	if cl.passing != nil {
		return p.passed(c, id, one, reply, err, cl.passing)
	}
	if err != nil {
		p.cursors.drop(c.user, id)
		if one.watches {
			return failure(codeHostUnreachable, err.Error(), labelResumable)
		}
		return failure(codeHostUnreachable, err.Error())
	}
	// The data can move while a stream waits for news. The batch may then hold writes of the reverse sync.
	if one.watches && one.moved() {
		return p.left(ctx, c, id, one)
	}
	// A switch ends a stream by an event, which drivers take for the end that the application wants. So does
	// an attempt of a switch that was aborted before the client came to the event.
	if one.watches && cursorOf(reply) == 0 && (one.moving() || succeeded(reply) && one.renamed()) {
		return p.left(ctx, c, id, one)
	}
	// A fence ends queries, also in an attempt that is aborted later.
	if code := codeOf(reply); (code == codePlanKilled || code == codeCursorNotFound) && (one.moving() || one.renamed()) {
		if reply := p.goOn(ctx, c, id, one); reply != nil {
			return reply
		}
	}
	// A query can also end because its index was dropped, and keeps the server's error then.
	if codeOf(reply) == codePlanKilled && one.moving() {
		return p.left(ctx, c, id, one)
	}
	// An error need not be the end of the cursor: the next call tells.
	if succeeded(reply) && cursorOf(reply) == 0 || codeOf(reply) == codeCursorNotFound {
		p.cursors.drop(c.user, id)
	} else {
		p.cursors.keep(id, one)
	}
	return one.reply(reply, id)
}

// message is the getMore of a client for the server of a cursor.
func (c cursor) message(more command) (message.Message, error) {
	m := more.msg
	var err error
	if number(m.Body, "getMore") != c.id {
		b := bsoncore.NewDocumentBuilder().AppendInt64("getMore", c.id)
		elems, err := m.Body.Elements()
		if err != nil {
			return m, err
		}
		for _, e := range elems[1:] {
			b.AppendValue(e.Key(), e.Value())
		}
		m.Body = b.Build()
	}
	if c.names != nil {
		m.Body, err = c.names.Command(m.Body)
	}
	return m, err
}

// reply is the reply of the server to a getMore for the client, who knows the cursor by an id. Whoever reads with
// the cursor has the rest.
func (c cursor) reply(reply bsoncore.Document, id int64) bsoncore.Document {
	if c.rest != nil && succeeded(reply) {
		c.rest.by = c.rest.by.delivered(reply)
	}
	if c.id != id && cursorOf(reply) != 0 {
		if v, err := reply.LookupErr("cursor", "id"); err == nil && v.Type == bsoncore.TypeInt64 {
			binary.LittleEndian.PutUint64(v.Data, uint64(id)) // in the reply, which is nobody else's
		}
	}
	if c.names != nil {
		if mapped, err := c.names.Reply(reply, c.watches); err == nil {
			return mapped
		}
	}
	return reply
}

// left ends a cursor at a place that the data leaves. A stream would end without a word there, or deliver
// the writes of the reverse sync. No driver goes on with it by itself: the events of the new place have other
// tokens.
func (p *Proxy) left(ctx context.Context, c command, id int64, one cursor) bsoncore.Document {
	_ = p.endCursor(ctx, c, id) // it may be gone already
	if one.watches {
		return failure(codeStreamHistoryLost, "the data has moved, and the events before are at its former place: begin a new change stream")
	}
	return failure(codeCursorNotFound, "the data has moved, and this cursor was at its former place: read again")
}

// kill ends cursors, which may be at several servers.
func (p *Proxy) kill(ctx context.Context, c command) bsoncore.Document {
	killed, missing := bsoncore.NewArrayBuilder(), bsoncore.NewArrayBuilder()
	ids, err := idsOf(c.msg.Body)
	if err != nil {
		return failure(codeIllegalOperation, err.Error())
	}
	for _, id := range ids {
		if err := p.endCursor(ctx, c, id); err != nil {
			missing.AppendInt64(id)
			continue
		}
		killed.AppendInt64(id)
	}
	none := bsoncore.NewArrayBuilder().Build()
	return bsoncore.NewDocumentBuilder().
		AppendArray("cursorsKilled", killed.Build()).AppendArray("cursorsNotFound", missing.Build()).
		AppendArray("cursorsAlive", none).AppendArray("cursorsUnknown", none).AppendDouble("ok", 1).Build()
}

// endCursor ends a cursor at its server, and forgets it.
func (p *Proxy) endCursor(ctx context.Context, c command, id int64) error {
	one, ok := p.cursors.get(c.user, id)
	if !ok {
		return errors.New("this proxy knows no such cursor")
	}
	p.cursors.drop(c.user, id)
	body, err := killOne(c, one)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, abortTimeout)
	defer cancel()
	_, _, err = p.exchange(ctx, c.user, one.cluster, upstream.Want{At: one.server}, request(body))
	return err
}

func idsOf(body bsoncore.Document) (ids []int64, err error) {
	v, err := body.LookupErr("cursors")
	if err != nil {
		return nil, err
	}
	list, ok := v.ArrayOK()
	if !ok {
		return nil, errors.New("cursors is no list")
	}
	values, err := list.Values()
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		id, ok := v.AsInt64OK()
		if !ok {
			return nil, errors.New("cursors has an entry that is no number")
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// killOne returns the command that ends one cursor, with the names of its place.
func killOne(c command, one cursor) (bsoncore.Document, error) {
	b := bsoncore.NewDocumentBuilder().AppendString("killCursors", c.collection).
		AppendArray("cursors", bsoncore.NewArrayBuilder().AppendInt64(one.id).Build())
	body := c.inherit(b).AppendString("$db", c.database).Build()
	if one.names == nil {
		return body, nil
	}
	return one.names.Command(body)
}
