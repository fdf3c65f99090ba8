package listing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
)

// DefaultPage is the page size of requests that set none. MaxPage is the largest page size; larger
// requests get MaxPage.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

const (
	// maxScan limits the records that one request reads in name order. If few records match the
	// filter, a page may be short or empty and still have a next page.
	maxScan = 10_000
	// maxSorted limits the records that List sorts in memory, and maxSortScan the records that it
	// reads to find them.
	maxSorted   = 10_000
	maxSortScan = 50_000
	// maxBytes limits the messages of a page, after the first one. By default a gRPC client accepts
	// 4 MiB, and a thousand large records would fill a server's memory.
	maxBytes = 3 << 20
	// maxHeld limits the messages that List holds while it sorts.
	maxHeld = 16 << 20
	// maxScanBytes and maxSortBytes limit the bytes of the records that List reads, in name order
	// and to sort them.
	maxScanBytes = 128 << 20
	maxSortBytes = 512 << 20
	batch        = 1000
)

// ErrGone means that a record must not be listed, for example because it was deleted while List
// made the page. Source.Message returns it, and List skips the record.
var ErrGone = errors.New("record is gone")

// ErrMore means that more records follow, although Source.Fetch returned fewer than the limit.
// Fetch returns it together with records whose bytes reach a limit of the store.
var ErrMore = errors.New("there are more records")

// Source reads records of type R for List and shows them as messages of type M.
type Source[R any, M proto.Message] struct {
	// Fetch returns the first records whose names come after the name after, in bytewise order of
	// names. It returns fewer than limit only at the end of the list, or together with ErrMore.
	Fetch func(ctx context.Context, after string, limit int) ([]R, error)
	// Name returns the name of a record.
	Name func(R) (string, error)
	// Size returns the bytes of a record as it was read. Nil means not known: List then has no
	// limit on the bytes that it reads.
	Size func(R) int
	// Message makes the message of a record. It must be a new message, since List changes it.
	Message func(ctx context.Context, r R) (M, error)
	// References lists fields of M that hold names of resources with two names. Filters match
	// either name.
	References []Reference
	// NameField is the field of M that holds the name, if there is one. An order by it alone needs
	// no sorting.
	NameField string
	// Descriptor describes M. It may be nil if M is a generated type.
	Descriptor protoreflect.MessageDescriptor
	// Index reads records by declared fields. The zero Index declares none.
	Index Index[R]
}

// fetch calls Fetch and reports whether more records may follow.
func (src Source[R, M]) fetch(ctx context.Context, after string, limit int) (recs []R, more bool, err error) {
	recs, err = src.Fetch(ctx, after, limit)
	if errors.Is(err, ErrMore) {
		return recs, true, nil
	}
	return recs, len(recs) == limit, err
}

// sizeOf returns the bytes of records, or 0 if they are not known.
func (src Source[R, M]) sizeOf(recs []R) (bytes int) {
	if src.Size != nil {
		for _, r := range recs {
			bytes += src.Size(r)
		}
	}
	return bytes
}

// Page is one page of a list.
type Page[M proto.Message] struct {
	// Items are the messages of the page, with the read mask applied.
	Items []M
	// NextPageToken is the token for the next page. It is empty after the last page.
	NextPageToken string

	bytes int
}

// add masks a message and adds it, unless the page would become too large. The first message always
// fits.
func (p *Page[M]) add(m M, mask *fieldmaskpb.FieldMask) (full bool, err error) {
	if err := ApplyMask(m, mask); err != nil {
		return false, err
	}
	n := proto.Size(m)
	if len(p.Items) > 0 && p.bytes+n > maxBytes {
		return true, nil
	}
	p.Items, p.bytes = append(p.Items, m), p.bytes+n
	return false, nil
}

// List makes the page that a request asks for. It finds the request's fields by FieldsOf.
//
// In name order, List reads no more than it needs. It uses Source.Index for a comparison by == or
// in with a declared field, and for an order by one declared field. For any other order it reads
// all records, at most 50,000 or 512 MiB, and sorts the matching ones, at most 10,000. Beyond these
// limits it fails with FailedPrecondition.
//
// A page ends early before its messages exceed 3 MiB, and after 10,000 records or 128 MiB were
// read. The records that List holds count as memory of the request.
//
// A list is not a snapshot. A record that exists all the time is on exactly one page. A record that
// is created, deleted or changed in a sorted field meanwhile is on one page or on none.
func List[R any, M proto.Message](ctx context.Context, req proto.Message, src Source[R, M]) (Page[M], error) {
	d := src.Descriptor
	if d == nil {
		var none M // of a generated type, whose nil pointer has a descriptor
		d = none.ProtoReflect().Descriptor()
	}
	q, err := newQuery(req, d, src.References, src.NameField)
	if err != nil {
		return Page[M]{}, err
	}
	ctx, read := memory.Read(ctx)
	defer read.Drop()
	// ErrNoIndex is no failure: the request can be served without an index.
	if page, err := indexed(ctx, q, src, d); !errors.Is(err, record.ErrNoIndex) {
		return page, err
	}
	if q.byName {
		return streamed(ctx, q, src)
	}
	return sorted(ctx, q, src)
}

// query is a parsed list request.
type query struct {
	filter Filter
	order  Order
	mask   *fieldmaskpb.FieldMask
	size   int
	digest string
	after  *Token // nil for the first page
	byName bool
}

func newQuery(req proto.Message, d protoreflect.MessageDescriptor, references []Reference, nameField string) (query, error) {
	m := req.ProtoReflect()
	names := FieldsOf(m.Descriptor())
	q := query{mask: Mask(m, names.ReadMask)}
	var err error
	if q.filter, err = ParseFilter(Text(m, names.Filter), d); err != nil {
		return query{}, err
	}
	// An error here is a fault of the handler, not of the client.
	if q.filter, err = q.filter.Referring(d, references); err != nil {
		return query{}, fmt.Errorf("list: %w", err)
	}
	if q.order, err = ParseOrder(Text(m, names.OrderBy), d); err != nil {
		return query{}, err
	}
	// Records arrive in name order, so this order needs no sorting.
	q.byName = len(q.order) == 0 || len(q.order) == 1 && q.order[0].Path == nameField && !q.order[0].Desc
	if err := CheckMask(q.mask, d); err != nil {
		return query{}, err
	}
	switch n := size(m, names.PageSize); {
	case n < 0:
		return query{}, Invalid("page_size", "is %d, must be 0 to %d", n, MaxPage)
	case n == 0:
		q.size = DefaultPage
	default:
		q.size = int(min(n, MaxPage))
	}
	// The digest ties the next page's token to this request.
	if q.digest, err = Digest(req, names); err != nil {
		return query{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	q.after, err = resume(Text(m, names.PageToken), q.digest, q.order)
	return q, err
}

func (q query) token(name string, values []any) string {
	return Token{Name: name, Values: values, Digest: q.digest}.String()
}

// streamed makes a page in name order. It stops reading when the page is full.
func streamed[R any, M proto.Message](ctx context.Context, q query, src Source[R, M]) (Page[M], error) {
	var page Page[M]
	last, scanned, bytes := "", 0, 0
	if q.after != nil {
		last = q.after.Name
	}
	var values []any
	limit := q.size + 1 // one more shows whether there is a next page
	if !q.filter.IsZero() {
		limit = batch
	}
	for {
		memory.ReadsOf(ctx).Keep(int64(page.bytes)) // the last batch is no longer held
		recs, more, err := src.fetch(ctx, last, limit)
		if err != nil {
			return Page[M]{}, err
		}
		for _, r := range recs {
			// This record proves that there is a next page.
			if len(page.Items) == q.size {
				page.NextPageToken = q.token(last, values)
				return page, nil
			}
			name, m, err := show(ctx, src, r, last)
			if err != nil && !errors.Is(err, ErrGone) {
				return Page[M]{}, err
			}
			if err == nil && q.filter.Eval(m) {
				full, err := page.add(m, q.mask)
				if err != nil {
					return Page[M]{}, err
				}
				if full {
					page.NextPageToken = q.token(last, values)
					return page, nil
				}
			}
			// A record without a match moves the token on too, so that the next page does not read
			// it again.
			last = name
			if len(q.order) == 1 {
				values = []any{name} // the order is by the name field
			}
		}
		if !more {
			return page, nil
		}
		scanned, bytes = scanned+len(recs), bytes+src.sizeOf(recs)
		// Return what there is. The token lets the client continue the search.
		if (scanned >= maxScan || bytes >= maxScanBytes) && len(page.Items) < q.size {
			page.NextPageToken = q.token(last, values)
			return page, nil
		}
	}
}

// show makes the message of a record. It checks that records arrive in name order, since page
// tokens rely on it.
func show[R any, M proto.Message](ctx context.Context, src Source[R, M], r R, last string) (name string, m M, err error) {
	if name, err = src.Name(r); err != nil {
		return "", m, err
	}
	if name <= last && last != "" {
		return "", m, fmt.Errorf("list: %q was fetched after %q", name, last)
	}
	m, err = src.Message(ctx, r)
	return name, m, err
}

// entry is a message with its place in an order.
type entry[M proto.Message] struct {
	name   string
	values []any
	msg    M
	size   int // bytes of msg
}

// held is the memory of the entry. A mask may have cleared the fields of the values in msg.
func (e entry[M]) held() int {
	n := e.size
	for _, v := range e.values {
		n += 16 // of an any
		switch x := v.(type) {
		case string:
			n += len(x)
		case []byte:
			n += len(x)
		}
	}
	return n
}

// compareEntries compares by values and then by names, which always rise.
func compareEntries[M proto.Message](o Order, a, b entry[M]) int {
	if c := o.compare(a.values, b.values); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

// sorted makes a page in an order that needs sorting. It reads all records.
func sorted[R any, M proto.Message](ctx context.Context, q query, src Source[R, M]) (Page[M], error) {
	compare := func(a, b entry[M]) int { return compareEntries(q.order, a, b) }
	var all []entry[M]
	var err error
	matching, scanned, bytes, held, last := 0, 0, 0, 0, ""
	// keep sorts the held messages and drops all that cannot be on the page. One extra message
	// shows that there is a next page.
	keep := func() {
		slices.SortFunc(all, compare)
		n, size, sum := 0, 0, 0
		for n < len(all) && n <= q.size && (n < 2 || size <= maxBytes) {
			size += all[n].size
			sum += all[n].held()
			n++
		}
		// Without this the slice would keep the dropped messages in memory.
		clear(all[n:])
		all, held = all[:n], sum
	}
	for {
		memory.ReadsOf(ctx).Keep(int64(held))
		recs, more, err := src.fetch(ctx, last, batch)
		if err != nil {
			return Page[M]{}, err
		}
		// A partial sort would give a wrong page, so fail instead.
		if bytes += src.sizeOf(recs); bytes > maxSortBytes {
			return Page[M]{}, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
				"order_by: the records have more than %d MiB, too many to look through for an order by %s: narrow the parent, or list without order_by", maxSortBytes>>20, q.order))
		}
		if scanned += len(recs); scanned > maxSortScan {
			return Page[M]{}, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
				"order_by: there are more than %d records, too many to look through for an order by %s: narrow the parent, or list without order_by", maxSortScan, q.order))
		}
		for _, r := range recs {
			name, m, err := show(ctx, src, r, last)
			if err != nil && !errors.Is(err, ErrGone) {
				return Page[M]{}, err
			}
			last = name
			if err != nil || !q.filter.Eval(m) {
				continue
			}
			if matching++; matching > maxSorted {
				return Page[M]{}, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
					"order_by: more than %d records match, too many to sort by %s: narrow the filter, or list without order_by", maxSorted, q.order))
			}
			// Take the sort values before the mask clears them.
			e := entry[M]{name: name, values: q.order.Values(m), msg: m}
			if q.after == nil || compare(e, entry[M]{name: q.after.Name, values: q.after.Values}) > 0 {
				if err := ApplyMask(m, q.mask); err != nil {
					return Page[M]{}, err
				}
				e.size = proto.Size(m)
				all, held = append(all, e), held+e.held()
			}
			// Sorting for each record would be slow, so let some pile up first.
			if len(all) > 2*q.size+batch || held > maxHeld {
				keep()
			}
		}
		if !more {
			break
		}
	}
	keep()
	var page Page[M]
	for i, e := range all {
		// The page may be full by count or by bytes.
		full := i == q.size
		if !full {
			if full, err = page.add(e.msg, q.mask); err != nil {
				return Page[M]{}, err
			}
		}
		if full {
			page.NextPageToken = q.token(all[i-1].name, all[i-1].values)
			break
		}
	}
	return page, nil
}
