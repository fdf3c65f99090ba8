// Package browser tests the page for operators in a real browser, against real controllers. It is a
// module of its own, so that no other module needs the client of the browser.
//
// 'make ui' runs the tests.
//
// It is not for users and may change with any version.
package browser
