package recordio

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
)

// This file writes to several collections with one bulkWrite command of MongoDB 8.0. Over a distance
// each command less is a round trip less.

const (
	opOverhead        = 128 // bytes of an operation and its condition, beyond the document and the _id
	namespaceOverhead = 512 // bytes of an entry of nsInfo, with the longest names
)

// combines reports whether runCombined can write all statements. One command for one collection is
// as good as a bulkWrite.
func (n *Records) combines(j *job, all []*statements) bool {
	if len(all) == 0 || len(all) == 1 && !trusts(all) || !j.joins || n.noBulkWrite.Load() {
		return false
	}
	size := 0
	bypass := bypasses(all)
	for _, s := range all {
		// The whole command skips validators, or none does. Side collections have none.
		if s.bypass != bypass && !s.side {
			return false
		}
		size += namespaceOverhead
		for i := range s.list {
			st := &s.list[i]
			// Whether each server's bulkWrite has the option that such a document needs is not known.
			if st.write.layout.EmptyTS {
				return false
			}
			size += opOverhead + st.write.size() + len(st.id.Value)
		}
	}
	return size <= wire.MaxCommandBytes
}

func bypasses(all []*statements) bool {
	return slices.ContainsFunc(all, func(s *statements) bool { return s.bypass })
}

// runCombined writes all statements in their order with one command, within a transaction. It stops
// at the first failure.
func (n *Records) runCombined(ctx context.Context, all []*statements) error {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	*buf = n.appendCombined(*buf, all)
	raw, err := n.RunAdmin(ctx, *buf)
	if conn.HasCode(err, conn.CodeCommandNotFound, conn.CodeCommandNotSupported, conn.CodeAPIStrict) && !conn.IsTransient(err) {
		// A server before MongoDB 8.0, or one whose features are those of an earlier version. It has
		// written nothing and ended the transaction.
		n.noBulkWrite.Store(true)
		return fmt.Errorf("%w: the server has no bulkWrite: %w", conn.ErrAgain, err)
	}
	if err != nil {
		return conn.Classify("write", err)
	}
	if err := combinedFailure(raw, all); err != nil || !trusts(all) {
		return err
	}
	return checkFound(raw, all)
}

// appendCombined appends the bulkWrite command for all statements.
func (n *Records) appendCombined(dst []byte, all []*statements) []byte {
	size := 0
	for _, s := range all {
		for i := range s.list {
			size += opOverhead + s.list[i].write.size() + len(s.list[i].id.Value)
		}
	}
	dst = slices.Grow(dst, size+len(all)*namespaceOverhead) // steps would leave garbage
	_, dst = bsoncore.AppendDocumentStart(dst)
	dst = bsoncore.AppendInt32Element(dst, "bulkWrite", 1)
	dst, ops := wire.BeginElement(dst, bson.TypeArray, "ops")
	var places []wire.Place
	at := 0
	for _, s := range all {
		// Statements of one collection are neighbours, but those of two verbs need one entry.
		ns := slices.IndexFunc(places, func(p wire.Place) bool { return p.Coll == s.place.Coll })
		if ns < 0 {
			ns, places = len(places), append(places, s.place)
		}
		for i := range s.list {
			dst = s.list[i].appendOp(dst, s.verb, at, int32(ns)) //nolint:gosec // kinds of one batch
			at++
		}
	}
	dst = wire.EndDocument(dst, ops)
	dst, info := wire.BeginElement(dst, bson.TypeArray, "nsInfo")
	for i, p := range places {
		var start int
		dst, start = wire.BeginIndexed(dst, bson.TypeEmbeddedDocument, i)
		dst = wire.EndDocument(wire.AppendNamespace(dst, n.Name, p), start)
	}
	dst = wire.EndDocument(dst, info)
	dst = bsoncore.AppendBooleanElement(dst, "ordered", true)
	dst = bsoncore.AppendBooleanElement(dst, "errorsOnly", true)
	if bypasses(all) {
		dst = bsoncore.AppendBooleanElement(dst, "bypassDocumentValidation", true)
	}
	return wire.EndDocument(dst, 0)
}

// appendOp appends element i of the operations. ns is the index of the collection.
func (st *statement) appendOp(dst []byte, verb string, i int, ns int32) []byte {
	dst, start := wire.BeginIndexed(dst, bson.TypeEmbeddedDocument, i)
	dst = bsoncore.AppendInt32Element(dst, verb, ns)
	if verb == "insert" {
		dst = bsoncore.AppendHeader(dst, bsoncore.TypeEmbeddedDocument, "document")
		return wire.EndDocument(st.write.appendTo(dst), start)
	}
	dst, filter := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "filter")
	dst = wire.EndDocument(st.want.appendTo(appendIDQuery(dst, st.id)), filter)
	if verb == "update" {
		dst = bsoncore.AppendHeader(dst, bsoncore.TypeEmbeddedDocument, "updateMods")
		dst = st.write.appendTo(dst)
	}
	return wire.EndDocument(bsoncore.AppendBooleanElement(dst, "multi", false), start)
}

var errCombined = errors.New("the server's answer to a bulkWrite cannot be read")

// combinedFailure returns the failure that the answer to a bulkWrite reports. nil means that all
// operations were done.
func combinedFailure(raw bson.Raw, all []*statements) error {
	failures, ok := raw.Lookup("nErrors").AsInt64OK()
	if !ok {
		return errCombined
	}
	first, err := wire.First(raw)
	if err != nil {
		return fmt.Errorf("%w: %w", errCombined, err)
	}
	if failures == 0 && first == nil {
		return nil
	}
	at, ok := first.Lookup("idx").AsInt64OK()
	code, known := first.Lookup("code").AsInt64OK()
	if !ok || !known || code == 0 {
		return errCombined
	}
	we := mongo.WriteError{Code: int(code), Raw: first}
	we.Message, _ = first.Lookup("errmsg").StringValueOK()
	we.Details, _ = first.Lookup("errInfo").DocumentOK()
	for _, s := range all {
		if at >= 0 && at < int64(len(s.list)) {
			return statementFailure(s.verb, s.place.Coll, we, s.list[at].owner)
		}
		at -= int64(len(s.list))
	}
	return errCombined // of no operation of ours
}
