package apiversion

import "google.golang.org/protobuf/proto"

// TypedOption tells Typed of fields that are not the same in both versions.
type TypedOption func(*oneSided)

// oneSided are the fields that one version alone has.
type oneSided struct{ old, new []string }

// OnlyOld names fields, by dotted paths that lead through messages but not into lists or
// maps, that the new version does not have, or has with another type. Requests on them are
// refused, as are those that want to give them a value that the functions do not keep.
func OnlyOld(paths ...string) TypedOption {
	return func(o *oneSided) { o.old = append(o.old, paths...) }
}

// OnlyNew names fields that the old version does not have, likewise.
func OnlyNew(paths ...string) TypedOption {
	return func(o *oneSided) { o.new = append(o.new, paths...) }
}

// Typed makes a resource of a pair of functions on generated messages. have is nil where
// nothing is known to exist.
//
// Requests on fields that both messages have, at the same path and of the same type, pass
// as they are. All others must be named by OnlyOld and OnlyNew, so that none is left out by
// mistake: it fails if one is not. A program that knows how to ask for one of them in the
// other version puts a mapping of its own around that of the Resource. Names are the same
// in both versions, unless SameNames is set to false and the mappings map them.
func Typed[O, N proto.Message](up func(old O, have N) (N, error), down func(now N, have O) (O, error), options ...TypedOption) (*Resource, error) {
	var o O
	var n N
	r := &Resource{
		Old: o.ProtoReflect().Descriptor(), New: n.ProtoReflect().Descriptor(),
		Up: typed(up), Down: typed(down), SameNames: true,
	}
	var only oneSided
	for _, option := range options {
		option(&only)
	}
	var err error
	if r.UpMapping, err = newSameFields(r.Old, r.New, "OnlyOld", only.old); err != nil {
		return nil, err
	}
	if r.DownMapping, err = newSameFields(r.New, r.Old, "OnlyNew", only.new); err != nil {
		return nil, err
	}
	return r.checked()
}

func typed[A, B proto.Message](f func(A, B) (B, error)) Converter {
	return func(msg, have proto.Message) (proto.Message, error) {
		a, err := as[A](msg)
		if err != nil {
			return nil, err
		}
		var b B
		if have != nil {
			if b, err = as[B](have); err != nil {
				return nil, err
			}
		}
		return f(a, b)
	}
}

// as returns a message as a generated type.
func as[T proto.Message](msg proto.Message) (T, error) {
	if t, ok := msg.(T); ok {
		return t, nil
	}
	var none T
	out := none.ProtoReflect().New().Interface()
	return out.(T), recast(out, msg)
}
