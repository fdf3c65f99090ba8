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

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
)

// Bounds of a page. A request that asks for more than MaxPage gets MaxPage.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

const (
	// maxScan bounds the records that one request looks through in name order: with a
	// filter that few match, a page may be short, or empty, and still have a next one.
	maxScan = 10_000
	// maxSorted bounds what is sorted in memory for another order, and maxSortScan what is looked
	// through for it.
	maxSorted   = 10_000
	maxSortScan = 50_000
	// maxBytes bounds a page beyond its first message: a gRPC client takes 4 MiB by default,
	// and a thousand large records would fill a server's memory.
	maxBytes = 3 << 20
	// maxHeld bounds the messages that are held to be sorted.
	maxHeld = 16 << 20
	// maxScanBytes and maxSortBytes bound likewise the bytes of the records that are looked through.
	maxScanBytes = 128 << 20
	maxSortBytes = 512 << 20
	batch        = 1000
)

// ErrGone is returned by Source.Message for a record that must not be listed, such as
// one that was deleted while the page is made.
var ErrGone = errors.New("record is gone")

// ErrMore is returned by Source.Fetch together with records: there are more, though these are fewer
// than the limit, because of their bytes.
var ErrMore = errors.New("there are more records")

// Source is where List gets records of type R, which it shows as messages of type M.
type Source[R any, M proto.Message] struct {
	// Fetch returns, in the order of their names, bytewise, the first records whose name
	// comes after after; fewer than limit only if there are no more, or with ErrMore.
	Fetch func(ctx context.Context, after string, limit int) ([]R, error)
	Name  func(R) (string, error)
	// Size is how many bytes a record has, as it was read. Nil: not known.
	Size func(R) int
	// Message makes the message of a record, a new one that List may change.
	Message func(ctx context.Context, r R) (M, error)
	// Where must be met besides the filter of the request. It is not part of the token's
	// digest by itself: what it follows from must be a field of the request.
	Where Filter
	// References are the fields of M whose names filters find by either of two.
	References []Reference
	// NameField is the field of M that is the name, if one is: an order by it alone needs
	// no sorting.
	NameField string
	// Descriptor is that of M. Nil goes with a generated type.
	Descriptor protoreflect.MessageDescriptor
	// Index reads records by declared fields. The zero Index: there are none.
	Index Index[R]
}

func (src Source[R, M]) fetch(ctx context.Context, after string, limit int) (recs []R, more bool, err error) {
	recs, err = src.Fetch(ctx, after, limit)
	if errors.Is(err, ErrMore) {
		return recs, true, nil
	}
	return recs, len(recs) == limit, err
}

// sizeOf is how many bytes records have.
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
	Items []M
	// NextPageToken is empty after the last page.
	NextPageToken string

	bytes int
}

// add adds a message, unless the page is too large for it.
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

// List makes the page that a request asks for with the fields that FieldsOf finds in it.
// In name order it reads no more than it needs. A comparison with a field of the Index is read by
// it, where it is == or in. So is an order by one such field. For another order it reads
// everything, at most 50,000 records or 512 MiB, and sorts what matches, at most 10,000. A page ends
// early where its messages would be more than 3 MiB, and where 10,000 records or 128 MiB were looked
// through. The records that it holds at a time count as the memory of the request.
//
// A list is no snapshot: a record that is there all the time is on exactly one page, one
// that is made, changed in what is sorted by, or deleted meanwhile on one or none.
func List[R any, M proto.Message](ctx context.Context, req proto.Message, src Source[R, M]) (Page[M], error) {
	d := src.Descriptor
	if d == nil {
		var none M // of a generated type, whose nil pointer knows its descriptor
		d = none.ProtoReflect().Descriptor()
	}
	q, err := newQuery(req, d, src.Where, src.References, src.NameField)
	if err != nil {
		return Page[M]{}, err
	}
	ctx, read := memory.Read(ctx)
	defer read.Drop()
	if page, err := indexed(ctx, q, src, d); !errors.Is(err, record.ErrNoIndex) {
		return page, err
	}
	if q.byName {
		return streamed(ctx, q, src)
	}
	return sorted(ctx, q, src)
}

// query is a list request, read.
type query struct {
	filter Filter
	order  Order
	mask   *fieldmaskpb.FieldMask
	size   int
	digest string
	after  *Token // nil at the beginning
	byName bool
}

func newQuery(req proto.Message, d protoreflect.MessageDescriptor, where Filter, references []Reference, nameField string) (query, error) {
	m := req.ProtoReflect()
	names := FieldsOf(m.Descriptor())
	q := query{mask: Mask(m, names.ReadMask)}
	var err error
	if q.filter, err = ParseFilter(Text(m, names.Filter), d); err != nil {
		return query{}, err
	}
	if where, err = where.Check(d); err != nil {
		return query{}, fmt.Errorf("list: %w", err)
	}
	if q.filter, err = All(q.filter, where).Referring(d, references); err != nil {
		return query{}, fmt.Errorf("list: %w", err)
	}
	if q.order, err = ParseOrder(Text(m, names.OrderBy), d); err != nil {
		return query{}, err
	}
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
	if q.digest, err = Digest(req, names); err != nil {
		return query{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	q.after, err = resume(Text(m, names.PageToken), q.digest, q.order)
	return q, err
}

func (q query) token(name string, values []any) string {
	return Token{Name: name, Values: values, Digest: q.digest}.String()
}

// streamed makes a page in name order.
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
		memory.ReadsOf(ctx).Keep(int64(page.bytes)) // the records are dropped
		recs, more, err := src.fetch(ctx, last, limit)
		if err != nil {
			return Page[M]{}, err
		}
		for _, r := range recs {
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
			last = name
			if len(q.order) == 1 {
				values = []any{name} // the order is by the field that is the name
			}
		}
		if !more {
			return page, nil
		}
		scanned, bytes = scanned+len(recs), bytes+src.sizeOf(recs)
		if (scanned >= maxScan || bytes >= maxScanBytes) && len(page.Items) < q.size {
			page.NextPageToken = q.token(last, values)
			return page, nil
		}
	}
}

// show makes the message of a record, and checks the order that tokens rest on.
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

// entry is a message with its place.
type entry[M proto.Message] struct {
	name   string
	values []any
	msg    M
}

// compareEntries is the order of a list: by values, and then by names from the least.
func compareEntries[M proto.Message](o Order, a, b entry[M]) int {
	if c := o.compare(a.values, b.values); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

// sorted makes a page of another order.
func sorted[R any, M proto.Message](ctx context.Context, q query, src Source[R, M]) (Page[M], error) {
	compare := func(a, b entry[M]) int { return compareEntries(q.order, a, b) }
	var all []entry[M]
	var err error
	matching, scanned, bytes, held, last := 0, 0, 0, 0, ""
	// keep leaves what can be on the page: one more shows that there is a next one.
	keep := func() {
		slices.SortFunc(all, compare)
		n, size := 0, 0
		for n < len(all) && n <= q.size && (n < 2 || size <= maxBytes) {
			size += proto.Size(all[n].msg)
			n++
		}
		clear(all[n:])
		all, held = all[:n], size
	}
	for {
		memory.ReadsOf(ctx).Keep(int64(held))
		recs, more, err := src.fetch(ctx, last, batch)
		if err != nil {
			return Page[M]{}, err
		}
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
			e := entry[M]{name, q.order.Values(m), m}
			if q.after == nil || compare(e, entry[M]{name: q.after.Name, values: q.after.Values}) > 0 {
				if err := ApplyMask(m, q.mask); err != nil {
					return Page[M]{}, err
				}
				all, held = append(all, e), held+proto.Size(m)
			}
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
