package proxy

import (
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// bulk serves a bulkWrite, which may name several collections. All must move with one deployment, or
// none may move.
func (p *Proxy) bulk(ctx context.Context, c command) bsoncore.Document {
	infos, err := c.sequence("nsInfo")
	if err != nil {
		return failure(codeIllegalOperation, err.Error())
	}
	var d *deployed
	for i, info := range infos {
		v, err := info.LookupErr("ns")
		if err != nil {
			continue // the server refuses it
		}
		ns, _ := v.StringValueOK()
		database, collection, _ := strings.Cut(ns, ".")
		one := p.deployment(command{database: database, collection: collection})
		if i > 0 && one != d {
			return failure(codeIllegalOperation, "a bulkWrite cannot name collections that move with different deployments, or some that do not move")
		}
		d = one
	}
	if d == nil {
		return p.pass(ctx, c)
	}
	var reply bsoncore.Document
	var made place
	torn, doubt := false, false // as in write
	waits, cancel := p.limited(c)
	defer cancel()
	err = d.write(waits, func(ctx context.Context, at place) error {
		if torn {
			reply = unknown("a switch stopped it in the middle")
			return nil
		}
		if done, err := d.look(ctx, at, c, nil); done != nil || err != nil {
			reply = done
			return err
		}
		m := c.msg
		m.Sequences = append([]message.Sequence(nil), c.msg.Sequences...)
		for i, s := range m.Sequences {
			if s.Name != "nsInfo" {
				continue
			}
			var out []byte
			for _, info := range infos {
				mapped, err := at.names.Info(info)
				if err != nil {
					reply = failure(codeIllegalOperation, err.Error())
					return nil
				}
				out = append(out, mapped...)
			}
			m.Sequences[i].Docs = out
		}
		body, err := bulkBody(at, m.Body)
		if err != nil {
			reply = failure(codeIllegalOperation, err.Error())
			return nil
		}
		m.Body = body
		got, server, err := p.serveAt(p.life, c, at.cluster, upstream.Want{}, m)
		if err != nil {
			reply = unreachable(c, err)
			return nil
		}
		made = at
		p.keepCursor(c, got, cursor{cluster: at.cluster, server: server.address})
		reply = got
		// As in write.
		if at.weak && at.epoch != never && repeated(got) {
			reply = unknown("it was made before, and the former place of the data lets such a write pass also after a switch")
			return nil
		}
		// A part of it may have been made, so it is never repeated.
		if fenced(got) || fencedOperation(got) {
			torn = true
			return again
		}
		doubt = succeeded(got) && at.weak && !p.lasts(ctx, d, at)
		return nil
	})
	switch {
	case err != nil && torn:
		return unknown("a switch stopped it in the middle")
	case err != nil && p.waiting.Err() != nil:
		return shutDown(c)
	case err != nil && waits.Err() != nil:
		return failure(codeTimeLimit, "operation exceeded time limit: "+err.Error())
	case err != nil:
		return newBatch(c).failed(err)
	case doubt && !p.stayed(ctx, d, made):
		return unknown("the data moved meanwhile, and its former place lets such a write pass")
	}
	return reply
}

// fencedOperation reports whether a fence may have refused an operation of a bulkWrite. The result of that
// operation may come in a later batch.
func fencedOperation(reply bsoncore.Document) bool {
	results, err := batchOf(reply)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(results, fenced) || number(reply, "nErrors") > 0 && cursorOf(reply) != 0
}

// bulkBody puts the names of a place into a bulkWrite whose list of names is in the body. The command
// itself belongs to the database admin everywhere.
func bulkBody(at place, body bsoncore.Document) (bsoncore.Document, error) {
	v, err := body.LookupErr("nsInfo")
	if err != nil {
		return body, nil
	}
	list, ok := v.ArrayOK()
	if !ok {
		return body, nil
	}
	mapped, err := at.names.Infos(list)
	if err != nil {
		return nil, err
	}
	rest, err := without(body, "nsInfo")
	if err != nil {
		return nil, err
	}
	return with(rest, "nsInfo", listed(mapped))
}
