package vrunner

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

const (
	// freeBytes is how many bytes a read may bring before it has asked for room. Most reads bring
	// less. The connections to the database bound how many run at a time, and each may hold as much.
	freeBytes = 4 << 20
	// pieceBytes is how much room a read of more asks for at first.
	pieceBytes = 8 << 20
	// defaultList is the limit of a list without one.
	defaultList = 1000
)

// fullError refuses a read that finds no room. It is record.ErrTooLarge as well: who can ask for
// less at a time does so.
type fullError struct{ error }

func (e fullError) Unwrap() error        { return e.error }
func (e fullError) Is(target error) bool { return target == record.ErrTooLarge }

// noRoomToRead is why so many bytes more cannot be read.
func noRoomToRead(r *memory.Reads, bytes int64) error {
	if r.Possible(bytes) {
		return fullError{refusal.New(refusal.Busy, errNoRoom)}
	}
	return fullError{connect.NewError(connect.CodeResourceExhausted, errors.New("what is asked for is larger than the server can hold for one request: ask for less"))}
}

// counted is what the reads of a context count in. Without anything they count by themselves while
// they run: alone reports that.
func counted(ctx context.Context) (r *memory.Reads, alone bool) {
	if r := memory.ReadsOf(ctx); r != nil {
		return r, false
	}
	_, r = memory.Read(ctx)
	return r, true
}

// take counts what was read.
func take(r *memory.Reads, bytes int64) error {
	if !r.Take(bytes) {
		return noRoomToRead(r, bytes)
	}
	return nil
}

// fitting reads what cannot be read in pieces. read is given how many bytes it may bring, 0 for any
// number, and returns how many it has brought, or record.ErrTooLarge.
func fitting(ctx context.Context, read func(bytes int) (int64, error)) error {
	r, alone := counted(ctx)
	if !r.Counts() {
		_, err := read(0)
		return err
	}
	if alone {
		defer r.Drop()
	}
	n, err := read(freeBytes)
	switch {
	case err == nil && !(alone && n <= freeBytes):
		return take(r, n)
	case !errors.Is(err, record.ErrTooLarge):
		return err
	}
	for most := int64(pieceBytes); ; most *= 4 {
		asked := min(most, r.Room())
		if asked < freeBytes || !r.Take(asked) {
			return noRoomToRead(r, freeBytes)
		}
		n, err := read(int(asked))
		if err == nil {
			return take(r, n-asked)
		}
		r.Take(-asked)
		if !errors.Is(err, record.ErrTooLarge) {
			return err
		}
		if asked < most {
			return noRoomToRead(r, asked+1)
		}
	}
}

// list is List, or with bytes ListBounded. Large lists are read in pieces, and each finds room before
// the next is read. A bounded list without room for another piece ends.
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
	had := int64(0) // bytes of out, which are counted
	defer func() {
		if err != nil {
			r.Take(-had)
		}
	}()
	for {
		asked, most := int64(0), int64(freeBytes)
		if len(out) > 0 {
			most = pieceBytes
		}
		if bytes > 0 {
			most = min(most, int64(bytes)-had)
		}
		if len(out) > 0 {
			asked = min(most, r.Room())
			if most = asked; asked == 0 || !r.Take(asked) {
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
		n := sizeOf(recs)
		if alone && len(out) == 0 && !cut {
			return recs, len(recs) == limit, nil
		}
		if !r.Take(n - asked) {
			full := noRoomToRead(r, n-asked)
			r.Take(-asked)
			if bytes > 0 && len(out) > 0 {
				return out, true, nil
			}
			return nil, false, full
		}
		out, had = append(out, recs...), had+n
		switch {
		case !cut:
			return out, len(out) == limit, nil
		case len(out) == limit || bytes > 0 && had >= int64(bytes):
			return out, true, nil
		}
		after, _ = out[len(out)-1].Key.Name()
	}
}

// listOnce is one list of the database. cut reports that bytes ended it; 0: nothing does.
func (v *View) listOnce(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, cut bool, err error) {
	err = v.read(ctx, kind, func(t record.Token) (err error) {
		cut = false
		recs, err = v.client.List(ctx, record.ListRequest{Token: t, Prefix: prefix, After: after, Limit: limit, Bytes: bytes, Cut: &cut})
		return err
	})
	return recs, cut, err
}

// sizeOf is how many bytes the documents of records have.
func sizeOf(recs []record.Record) (n int64) {
	for _, rec := range recs {
		n += int64(len(rec.Doc))
	}
	return n
}
