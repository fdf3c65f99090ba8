package upgradestate_test

import (
	"reflect"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestCloneSharesNothing: with every field set, those that are added later too, a copy is
// equal and has no memory in common. Package deployment decodes a record once and gives
// each of its readers a copy.
func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	fill(t, reflect.ValueOf(&d).Elem(), "record")
	c := us.Clone(d)
	if !reflect.DeepEqual(d, c) {
		t.Fatalf("the copy differs:\n%+v\n%+v", d, c)
	}
	apart(t, reflect.ValueOf(d), reflect.ValueOf(c), "record")
}

// fill sets whatever v consists of.
func fill(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, path)
		fill(t, value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// apart walks two equal values.
func apart(t *testing.T, a, b reflect.Value, path string) {
	t.Helper()
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			apart(t, a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name)
		}
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.UnsafePointer() == b.UnsafePointer() {
			t.Errorf("%s is shared", path)
			return
		}
		switch a.Kind() {
		case reflect.Pointer:
			apart(t, a.Elem(), b.Elem(), path)
		case reflect.Slice:
			apart(t, a.Index(0), b.Index(0), path)
		case reflect.Map:
			for _, k := range a.MapKeys() {
				apart(t, a.MapIndex(k), b.MapIndex(k), path)
			}
		}
	}
}
