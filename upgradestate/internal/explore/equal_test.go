package explore

import (
	"reflect"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestEqualSeesEachField: a field that is added to the record later is compared, too.
func TestEqualSeesEachField(t *testing.T) {
	t.Parallel()
	record := func() us.Deployment {
		return us.Deployment{Namespaces: []us.Namespace{{Kinds: []us.Kind{{Pending: &us.Pending{}}}}}}
	}
	parts := map[string]func(*us.Deployment) any{
		"namespace": func(d *us.Deployment) any { return &d.Namespaces[0] },
		"identity":  func(d *us.Deployment) any { return &d.Namespaces[0].Identity },
		"images":    func(d *us.Deployment) any { return &d.Namespaces[0].Images },
		"kind":      func(d *us.Deployment) any { return &d.Namespaces[0].Kinds[0] },
		"pending":   func(d *us.Deployment) any { return d.Namespaces[0].Kinds[0].Pending },
	}
	if !equal(record(), record()) {
		t.Fatal("a record is not equal to itself")
	}
	for name, part := range parts {
		zero := record()
		for i := range reflect.ValueOf(part(&zero)).Elem().NumField() {
			d := record()
			v := reflect.ValueOf(part(&d)).Elem()
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Uint64:
				f.SetUint(1)
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]int64{"x": 1}))
			case reflect.Slice, reflect.Pointer:
				if f.IsZero() {
					f.Set(reflect.MakeSlice(f.Type(), 1, 1))
				} else {
					f.SetZero()
				}
			case reflect.Struct: // its fields are a part of their own
				continue
			default:
				t.Fatalf("%s: no other value for %s", name, v.Type().Field(i).Name)
			}
			if equal(d, record()) || equal(record(), d) {
				t.Errorf("%s: %s makes no difference", name, v.Type().Field(i).Name)
			}
		}
	}
}
