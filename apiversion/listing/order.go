package listing

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Order is the sort order of a list. Ties sort by name. The empty Order sorts by name alone.
type Order []OrderField

// OrderField is one field of an Order. The direction is ascending unless Desc is set.
type OrderField struct {
	Path string
	Desc bool

	field *field
}

// maxOrder is the maximum number of fields in an Order. Each held record keeps its values of them,
// and each comparison may look at all.
const maxOrder = 16

// ParseOrder parses an order_by such as "created desc, labels.tier" for messages of a type. It
// returns InvalidArgument with the wrong field.
func ParseOrder(text string, d protoreflect.MessageDescriptor) (Order, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > maxFilter {
		return nil, Invalid("order_by", "has %d bytes, at most %d are allowed", len(text), maxFilter)
	}
	var o Order
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(part)
		f := OrderField{}
		switch {
		case len(words) == 2 && words[1] == "desc":
			f.Desc = true
		case len(words) == 1 || len(words) == 2 && words[1] == "asc":
		default:
			return nil, Invalid("order_by", "%q must be a field, or a field and desc", strings.TrimSpace(part))
		}
		f.Path = words[0]
		o = append(o, f)
	}
	return o.Check(d)
}

// Check finds the fields of the order in the messages to sort. It returns InvalidArgument for a
// field without a single comparable value.
func (o Order) Check(d protoreflect.MessageDescriptor) (Order, error) {
	if len(o) > maxOrder {
		return nil, Invalid("order_by", "has %d fields, at most %d are allowed", len(o), maxOrder)
	}
	out := make(Order, len(o))
	seen := map[string]bool{}
	for i, of := range o {
		parts, err := SplitPath(of.Path)
		if err != nil {
			return nil, Invalid("order_by", "%s", err)
		}
		f, err := resolve(d, parts)
		switch {
		case err != nil:
			return nil, Invalid("order_by", "%s", err)
		case f.shape != single || f.many || typeOf(f.fd) == otherType:
			return nil, Invalid("order_by", "%s has no single value to sort by", of.Path)
		// The second one would never decide.
		case seen[of.Path]:
			return nil, Invalid("order_by", "%s is there twice", of.Path)
		}
		seen[of.Path] = true
		out[i] = OrderField{Path: of.Path, Desc: of.Desc, field: &f}
	}
	return out, nil
}

// String returns the order in the syntax of ParseOrder.
func (o Order) String() string {
	parts := make([]string, len(o))
	for i, f := range o {
		parts[i] = f.Path
		if f.Desc {
			parts[i] += " desc"
		}
	}
	return strings.Join(parts, ", ")
}

// Values returns the values by which a message is sorted, one for each field. An absent value is
// nil. Call Check on o first.
func (o Order) Values(msg proto.Message) []any {
	out := make([]any, len(o))
	for i, of := range o {
		of.field.values(msg.ProtoReflect(), func(v protoreflect.Value) bool {
			out[i] = ValueOf(of.field.fd, v)
			return false
		})
	}
	return out
}

// Compare compares two messages by their values, not by names. Absent values come first.
func (o Order) Compare(a, b proto.Message) int { return o.compare(o.Values(a), o.Values(b)) }

func (o Order) compare(a, b []any) int {
	for i := range o {
		// Check gave both values the type of the field.
		c, _ := CompareValues(a[i], b[i])
		if o[i].Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}
