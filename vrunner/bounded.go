package vrunner

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

const (
	// freeBytes is the size of a read, in bytes, that needs no room beforehand. Most reads are
	// smaller. The number of database connections bounds how many such reads run at the same time.
	freeBytes = 4 << 20
	// pieceBytes is the room, in bytes, that a larger read takes first.
	pieceBytes = 8 << 20
	// defaultList is the limit of a list that sets none.
	defaultList = 1000
)

// fullError refuses a read without room. It also matches record.ErrTooLarge, so that callers that
// can read less at a time do so.
type fullError struct{ error }

func (e fullError) Unwrap() error        { return e.error }
func (e fullError) Is(target error) bool { return target == record.ErrTooLarge }

// noRoomToRead returns the error of a read that needs that many more bytes. It depends on whether a
// retry could ever succeed.
func noRoomToRead(r *memory.Reads, bytes int64) error {
	if r.Possible(bytes) {
		return fullError{refusal.New(refusal.Busy, memory.ErrNoRoom)}
	}
	return fullError{connect.NewError(connect.CodeResourceExhausted, errors.New("what is asked for is larger than the server can hold for one request: ask for less"))}
}

// counted returns the counter for the reads of a context. If the context has none, it returns a new
// one for this read only, and alone is true.
func counted(ctx context.Context) (r *memory.Reads, alone bool) {
	if r := memory.ReadsOf(ctx); r != nil {
		return r, false
	}
	_, r = memory.Read(ctx)
	return r, true
}

// take counts bytes that were read, or fails without room.
func take(r *memory.Reads, bytes int64) error {
	if !r.Take(bytes) {
		return noRoomToRead(r, bytes)
	}
	return nil
}

// fitting runs a read that cannot be split into pieces. read gets the number of bytes that it may
// return; 0 means no limit. It returns the number of bytes read, or record.ErrTooLarge.
func fitting(ctx context.Context, read func(bytes int) (int64, error)) error {
	r, alone := counted(ctx)
	// Background work has no limit.
	if !r.Counts() {
		_, err := read(0)
		return err
	}
	if alone {
		defer r.Drop()
	}
	// Most reads are small. They run first without room, so that they do not compete for it.
	n, err := read(int(max(freeBytes, r.Paid())))
	switch {
	// Within freeBytes, a read that counts only for itself has nothing to take.
	case err == nil && !(alone && n <= freeBytes):
		return take(r, n)
	case !errors.Is(err, record.ErrTooLarge):
		return err
	}
	// The size is unknown, so each retry takes more room, until the read fits or no room is left.
	for most := int64(pieceBytes); ; most *= 4 {
		asked := min(most, r.Room())
		// Below freeBytes the read has failed already.
		if asked < freeBytes || !r.Take(asked) {
			return noRoomToRead(r, freeBytes)
		}
		n, err := read(int(asked))
		if err == nil {
			// The read is usually smaller than the room taken, so this gives bytes back.
			return take(r, n-asked)
		}
		r.Take(-asked)
		if !errors.Is(err, record.ErrTooLarge) {
			return err
		}
		// Room limited this attempt, so a larger one cannot run.
		if asked < most {
			return noRoomToRead(r, asked+1)
		}
	}
}

// list is List, or ListBounded if bytes is positive. It reads large lists in pieces and takes room
// for each piece before it reads. Without room for the next piece, a bounded list ends early.
func (v *View) list(ctx context.Context, kind, prefix, after string, limit, bytes int) (out []record.Record, more bool, err error) {
	if limit <= 0 {
		limit = defaultList
	}
	r, alone := counted(ctx)
	if !r.Counts() {
		recs, cut, err := v.listOnce(ctx, kind, prefix, after, limit, bytes)
		return recs, cut || len(recs) == limit, err
	}
	if alone {
		defer r.Drop()
	}
	had := int64(0) // size of out, already counted
	defer func() {
		// The caller gets no records after an error, so it must not pay for them.
		if err != nil {
			r.Take(-had)
		}
	}()
	for {
		asked, most := int64(0), max(freeBytes, r.Paid())
		if len(out) > 0 {
			most = pieceBytes
		}
		// The last piece ends at the limit of the caller.
		if bytes > 0 {
			most = min(most, int64(bytes)-had)
		}
		// The first piece takes no memory beforehand, because most lists end with it.
		if len(out) > 0 {
			asked = min(most, r.Room())
			if most = asked; asked == 0 || !r.Take(asked) {
				// A bounded list may end early. The caller continues after its last record.
				if bytes > 0 {
					return out, true, nil
				}
				return nil, false, noRoomToRead(r, pieceBytes)
			}
		}
		recs, cut, err := v.listOnce(ctx, kind, prefix, after, limit-len(out), int(most))
		if err != nil {
			r.Take(-asked)
			return nil, false, err
		}
		// The database ends with the record that reaches the limit, so the piece can exceed it.
		n := sizeOf(recs)
		// The complete list fits into the free size, and nobody else counts it.
		if alone && len(out) == 0 && !cut {
			return recs, len(recs) == limit, nil
		}
		if !r.Take(n - asked) {
			// The error comes first: it depends on the bytes that the piece still takes.
			full := noRoomToRead(r, n-asked)
			r.Take(-asked)
			if bytes > 0 && len(out) > 0 {
				return out, true, nil
			}
			return nil, false, full
		}
		out, had = append(out, recs...), had+n
		// Continue only if the byte limit of this piece ended the list.
		switch {
		case !cut:
			return out, len(out) == limit, nil
		case len(out) == limit || bytes > 0 && had >= int64(bytes):
			return out, true, nil
		}
		after, _ = out[len(out)-1].Key.Name()
	}
}

// listOnce sends one list command. cut reports that the byte limit ended it. bytes 0 means no
// limit.
func (v *View) listOnce(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, cut bool, err error) {
	err = v.read(ctx, kind, func(t record.Token) (err error) {
		// A retry with another token must not keep the result of the previous attempt.
		cut = false
		recs, err = v.client.List(ctx, record.ListRequest{Token: t, Prefix: prefix, After: after, Limit: limit, Bytes: bytes, Cut: &cut})
		return err
	})
	return recs, cut, err
}

// sizeOf returns the total size of the documents in bytes.
func sizeOf(recs []record.Record) (n int64) {
	for _, rec := range recs {
		n += int64(len(rec.Doc))
	}
	return n
}
