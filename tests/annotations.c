/* annotations.c - files of annotation tools: what is written reads back as the same masks; bad input is named. */
#include "io/annotations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/image.h"

#define W 37
#define H 29

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Blobs with holes, islands in holes and single pixels; `kind` chooses how ragged. */
static void make_mask(rle *out, int kind)
{
    uint8_t m[W * H] = {0};
    uint32_t state = (uint32_t)kind * 77u + 5u;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            int ring = (x - 18) * (x - 18) + (y - 14) * (y - 14);
            bool on = kind % 3 == 0 ? next_random(&state) % 2 : ring < 150 && (ring > 60 || ring < 20);
            if (kind % 3 == 2)
                on = on != (next_random(&state) % 16 == 0);
            m[y * W + x] = on;
        }
    assert_int_equal(rle_encode(out, m, W, H, NULL), SAMITE_OK);
}

static bool same_mask(const rle *a, const rle *b)
{
    return a->width == b->width && a->height == b->height && a->runs == b->runs &&
           memcmp(a->counts, b->counts, a->runs * sizeof *a->counts) == 0;
}

#define MASKS 6
/* One picture with masks, a box and odd names. */
static void make_set(annotations *a, bool box)
{
    *a = (annotations){0};
    assert_int_equal(annotations_add_image(a, "folder/a \"<&'\xc3\xa9.jpg", W, H, NULL), 0);
    assert_int_equal(annotations_category(a, "dog \"big\" <&> \\ \xe7\x8a\xac", NULL), 0);
    assert_int_equal(annotations_category(a, "cat: # [x]", NULL), 1);
    for (int i = 0; i < MASKS; i++) {
        labelled_object o = {.category = i % 2, .score = 0.125 * i};
        make_mask(&o.mask, i);
        assert_int_equal(annotations_add(a, &o, NULL), SAMITE_OK);
    }
    labelled_object o = {.category = 1, .score = (double)NAN, .has_box = true, .box = {3, 4, 10.5, 6}};
    if (box)
        assert_int_equal(annotations_add(a, &o, NULL), SAMITE_OK);
    assert_int_equal(annotations_sort(a, NULL), SAMITE_OK);
}

typedef int read_fn(annotations *a, const char *data, size_t size, const char *name, samite_error *err);

static char *slurp(const char *name, size_t *size)
{
    uint8_t *data;
    assert_int_equal(file_read(&data, size, in_folder(name), 1 << 24, NULL), SAMITE_OK);
    unlink(in_folder(name));
    return (char *)data;
}

static void check_same(const annotations *a, const annotations *b, bool scores)
{
    assert_int_equal(b->drop_count, 0);
    assert_int_equal(b->count, a->count);
    for (size_t i = 0; i < a->count; i++) {
        rle x, y;
        assert_string_equal(b->categories[b->objects[i].category], a->categories[a->objects[i].category]);
        assert_int_equal(object_mask(&x, &a->objects[i], W, H, NULL), SAMITE_OK);
        assert_int_equal(object_mask(&y, &b->objects[i], W, H, NULL), SAMITE_OK);
        assert_true(same_mask(&x, &y));
        if (scores)
            assert_true(a->objects[i].score == b->objects[i].score || isnan(b->objects[i].score));
        rle_free(&x);
        rle_free(&y);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    annotations a, b = {0};
    size_t size;
    make_set(&a, true);
    assert_int_equal(labelme_write(&a, 0, in_folder("l.json"), NULL), SAMITE_OK);
    char *data = slurp("l.json", &size);
    assert_int_equal(labelme_read(&b, data, size, "l.json", NULL), SAMITE_OK);
    check_same(&a, &b, true);
    assert_string_equal(b.images[0].file, "a \"<&'\xc3\xa9.jpg");
    annotations_free(&b);
    free(data);

    assert_int_equal(coco_annotations_write(&a, in_folder("c.json"), NULL), SAMITE_OK);
    data = slurp("c.json", &size);
    assert_int_equal(coco_annotations_read(&b, data, size, "c.json", NULL), SAMITE_OK);
    check_same(&a, &b, true);
    assert_string_equal(b.images[0].file, a.images[0].file);
    annotations_free(&b);
    free(data);

    a.objects[2].has_track = true;
    a.objects[2].track = 41;
    assert_int_equal(cvat_write(&a, in_folder("c.xml"), NULL), SAMITE_OK);
    data = slurp("c.xml", &size);
    assert_int_equal(cvat_read(&b, data, size, "c.xml", NULL), SAMITE_OK);
    check_same(&a, &b, true);
    assert_string_equal(b.images[0].file, a.images[0].file);
    assert_true(b.objects[2].has_track && b.objects[2].track == 41 && !b.objects[1].has_track);
    annotations_free(&b);
    free(data);
    annotations_free(&a);

    make_set(&a, false);
    assert_int_equal(yolo_write_names(&a, in_folder("data.yaml"), NULL), SAMITE_OK);
    data = slurp("data.yaml", &size);
    annotations_add_image(&b, "x.jpg", W, H, NULL);
    assert_int_equal(yolo_read_names(&b, data, size, "data.yaml", NULL), SAMITE_OK);
    free(data);
    assert_int_equal(yolo_write(&a, 0, in_folder("y.txt"), NULL), SAMITE_OK);
    data = slurp("y.txt", &size);
    assert_int_equal(yolo_read(&b, 0, data, size, "y.txt", NULL), SAMITE_OK);
    check_same(&a, &b, false);
    free(data);
    annotations_free(&b);
    annotations_free(&a);
}

/* Boxes go through VOC and YOLO without a change. */
static void test_boxes(void **state)
{
    (void)state;
    annotations a = {0}, b = {0};
    size_t size;
    annotations_add_image(&a, "x.jpg", 40, 20, NULL);
    annotations_category(&a, "a<b", NULL);
    labelled_object o = {.has_box = true, .box = {2, 3, 10, 7}, .score = (double)NAN};
    annotations_add(&a, &o, NULL);
    annotations_sort(&a, NULL);
    assert_int_equal(voc_write(&a, 0, in_folder("v.xml"), NULL), SAMITE_OK);
    char *data = slurp("v.xml", &size);
    assert_non_null(strstr(data, "<xmin>3</xmin><ymin>4</ymin><xmax>12</xmax><ymax>10</ymax>"));
    assert_int_equal(voc_read(&b, data, size, "v.xml", NULL), SAMITE_OK);
    assert_string_equal(b.categories[0], "a<b");
    assert_int_equal(b.images[0].width, 40);
    assert_memory_equal(b.objects[0].box, a.objects[0].box, sizeof o.box);
    free(data);
    assert_int_equal(yolo_write(&a, 0, in_folder("y.txt"), NULL), SAMITE_OK);
    data = slurp("y.txt", &size);
    assert_string_equal(data, "0 0.175 0.325 0.25 0.35\n");
    assert_int_equal(yolo_read(&b, 0, data, size, "y.txt", NULL), SAMITE_OK);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(b.objects[1].box[i] - a.objects[0].box[i]) < 1e-9);
    free(data);
    annotations_free(&a);
    annotations_free(&b);
}

/* Even-odd filling of all rings gives the mask; no ring meets a corner twice; holes lie in their owners. */
static void check_rings(const rle *r)
{
    ring_list l;
    assert_int_equal(mask_to_rings(&l, r, NULL), SAMITE_OK);
    int64_t sum = 0;
    for (size_t i = 0, at = 0; i < l.rings.count; at = l.rings.ends[i++]) {
        int64_t area = 0;
        size_t n = l.rings.ends[i] - at;
        const int32_t *p = l.rings.xy + 2 * at;
        for (size_t k = 0; k < n; k++) {
            size_t q = (k + 1) % n;
            area += (int64_t)p[2 * k] * p[2 * q + 1] - (int64_t)p[2 * q] * p[2 * k + 1];
            for (size_t j = 0; j < k; j++)
                assert_false(p[2 * j] == p[2 * k] && p[2 * j + 1] == p[2 * k + 1]);
        }
        assert_true((area > 0) == (l.owner[i] == i));
        assert_true(l.owner[l.owner[i]] == l.owner[i]);
        sum += area;
    }
    assert_int_equal(sum, 2 * (int64_t)rle_area(r));
    ring_list_free(&l);
}

static void test_rings(void **state)
{
    (void)state;
    for (int kind = 0; kind < 60; kind++) {
        rle r;
        make_mask(&r, kind);
        check_rings(&r);
        rle_free(&r);
    }
}

static void test_geojson(void **state)
{
    (void)state;
    annotations a;
    size_t size;
    georef g;
    samite_error err;
    make_set(&a, true);
    assert_int_equal(geojson_write(&a, 0, NULL, in_folder("g.json"), NULL), SAMITE_OK);
    char *data = slurp("g.json", &size);
    json_t *o = json_loads(data, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(o, "coordinates")), "pixels");
    json_t *ring = json_array_get(json_object_get(json_object_get(json_array_get(json_object_get(o, "features"), 1),
                                                                  "geometry"), "coordinates"), 0);
    assert_int_equal(json_array_size(json_object_get(o, "features")), MASKS + 1);
    assert_int_equal(json_array_size(ring), 2);        /* the first part of a target: outside and one hole */
    json_decref(o);
    free(data);
    static const char world[] = "0.5\n0\n0\n-0.5\n100.25\r\n199.75\n";
    assert_int_equal(georef_parse_world(&g, world, sizeof world - 1, "a.jgw", &err), SAMITE_OK);
    assert_true(g.m[0] == 100 && g.m[3] == 200 && g.m[1] == 0.5 && g.m[5] == -0.5);
    assert_int_equal(geojson_write(&a, 0, &g, in_folder("g.json"), NULL), SAMITE_OK);
    data = slurp("g.json", &size);
    o = json_loads(data, 0, NULL);
    json_t *box = json_array_get(json_object_get(json_object_get(json_array_get(json_object_get(o, "features"), MASKS),
                                                                 "geometry"), "coordinates"), 0);
    double x[5], y[5], area = 0;
    for (int i = 0; i < 5; i++)
        assert_int_equal(json_unpack(json_array_get(box, i), "[F, F]", &x[i], &y[i]), 0);
    for (int i = 0; i < 4; i++)
        area += x[i] * y[i + 1] - x[i + 1] * y[i];
    assert_true(x[0] == 101.5 && y[0] == 198 && x[4] == x[0] && y[4] == y[0]);
    assert_true(area > 0);                             /* counter-clockwise on the map */
    json_decref(o);
    free(data);
    assert_int_equal(georef_parse_world(&g, "1\n2\nx", 5, "bad.jgw", &err), SAMITE_INPUT);
    assert_non_null(strstr(err.text, "bad.jgw"));
    assert_int_equal(georef_parse_world(&g, "0 0 0 0 1 1", 11, "flat.jgw", &err), SAMITE_INPUT);
    annotations_free(&a);
}

/* CVAT's run lengths go row by row inside the box and start with background. */
static void test_cvat(void **state)
{
    (void)state;
    annotations a = {0};
    size_t size;
    static const uint8_t m[] = {0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1};
    annotations_add_image(&a, "a&b.jpg", 4, 3, NULL);
    annotations_category(&a, "x<y", NULL);
    labelled_object o = {.score = 0.5};
    assert_int_equal(rle_encode(&o.mask, m, 4, 3, NULL), SAMITE_OK);
    annotations_add(&a, &o, NULL);
    annotations_sort(&a, NULL);
    assert_int_equal(cvat_write(&a, in_folder("c.xml"), NULL), SAMITE_OK);
    char *data = slurp("c.xml", &size);
    assert_non_null(strstr(data, "<image id=\"0\" name=\"a&amp;b.jpg\" width=\"4\" height=\"3\">"));
    assert_non_null(strstr(data, "<mask label=\"x&lt;y\" source=\"auto\" occluded=\"0\" rle=\"0, 2, 1, 1, 1, 1\" "
                                 "left=\"1\" top=\"1\" width=\"3\" height=\"2\" z_order=\"0\">"));
    free(data);
    annotations_free(&a);
}

static void test_label_map(void **state)
{
    (void)state;
    annotations a = {0};
    uint16_t labels[W * H] = {0}, *values;
    int width, height;
    size_t size;
    for (int i = 0; i < W * H; i++)
        labels[i] = (uint16_t)(i % W < 5 ? 0 : i % 3 * 300);
    png_image_data png = {.width = W, .height = H, .kind = PNG_GRAY16, .data = labels};
    assert_int_equal(image_write_png(in_folder("l.png"), &png, NULL), SAMITE_OK);
    char *data = slurp("l.png", &size);
    assert_int_equal(image_decode_labels(&values, &width, &height, (uint8_t *)data, size, "l.png", 0, NULL), SAMITE_OK);
    assert_true(width == W && height == H);
    assert_memory_equal(values, labels, sizeof labels);
    annotations_add_image(&a, "l.png", W, H, NULL);
    assert_int_equal(label_map_read(&a, 0, 0, values, NULL), SAMITE_OK);
    assert_int_equal(a.count, 2);
    for (int k = 0; k < 2; k++) {
        uint8_t m[W * H];
        rle_decode(m, &a.objects[k].mask);
        for (int i = 0; i < W * H; i++)
            assert_int_equal(m[i], labels[i] == 300 * (k + 1));
    }
    samite_error err;
    free(values);
    assert_int_equal(image_decode_labels(&values, &width, &height, (uint8_t *)data, size / 2, "l.png", 0, &err),
                     SAMITE_INPUT);
    assert_null(values);
    assert_int_equal(image_decode_labels(&values, &width, &height, (uint8_t *)data, size, "l.png", 10, &err),
                     SAMITE_INPUT);
    free(data);
    annotations_free(&a);
}

/* What a reader says about a text, and what it drops. */
static void refused(read_fn *read, const char *text, const char *says)
{
    annotations a = {0};
    samite_error err = {0};
    assert_int_equal(read(&a, text, strlen(text), "in.txt", &err), SAMITE_INPUT);
    assert_non_null(strstr(err.text, says));
    annotations_free(&a);
}

static void drops(read_fn *read, const char *text, size_t kept, const char *why)
{
    annotations a = {0};
    samite_error err = {0};
    assert_int_equal(read(&a, text, strlen(text), "in.txt", &err), SAMITE_OK);
    assert_int_equal(a.count, kept);
    assert_int_equal(a.drop_count, 1);
    assert_non_null(strstr(a.drops[0].why, why));
    assert_int_equal(a.drops[0].count, 1);
    annotations_free(&a);
}

static int read_yaml(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    (void)name;
    return yolo_read_names(a, data, size, "in.yaml", err);
}

#define LABELME(SHAPES) "{\"imagePath\":\"a.jpg\",\"imageWidth\":9,\"imageHeight\":9,\"shapes\":[" SHAPES "]}"
#define COCO(ANNOTATIONS) \
    "{\"images\":[{\"id\":7,\"file_name\":\"a\",\"width\":9,\"height\":9}],\"categories\":[{\"id\":0," \
    "\"name\":\"n\"}],\"annotations\":[{\"image_id\":7,\"category_id\":0,\"bbox\":[1,1,2,2]},{" ANNOTATIONS "}]}"

#define CVAT(SHAPES) "<annotations><image name=\"a\" width=\"4\" height=\"3\">" SHAPES "</image></annotations>"
#define CVAT_MASK(RUNS) CVAT("<mask label=\"x\" rle=\"" RUNS "\" left=\"1\" top=\"1\" width=\"3\" height=\"2\"/>")

static void test_bad_cvat(void **state)
{
    (void)state;
    refused(cvat_read, "<annotations>\n<image>", "line 2: an image without name");
    refused(cvat_read, "<annotations>\n", "broken XML, line 2");
    refused(cvat_read, "<a/>", "is this \"CVAT for images");
    refused(cvat_read, "<annotations><track/></annotations>", "CVAT for video");
    drops(cvat_read, CVAT_MASK("0, 2, 1, 1, 1"), 0, "do not fill");
    drops(cvat_read, CVAT_MASK("0, 99999999999999999999, 1"), 0, "do not fill");
    drops(cvat_read, CVAT("<mask label=\"x\" rle=\"0,6\" left=\"2\" top=\"1\" width=\"3\" height=\"2\"/>"), 0, "leave");
    drops(cvat_read, CVAT("<box label=\"x\" xtl=\"1\" ytl=\"1\" xbr=\"0\" ybr=\"nan\"/>"), 0, "corners");
    drops(cvat_read, CVAT("<polygon label=\"x\" points=\"1,1;2,2\"/>"), 0, "fewer than 3");
    drops(cvat_read, CVAT("<polygon label=\"x\" points=\"1,1;2;3,4\"/>"), 0, "without numbers");
    drops(cvat_read, CVAT("<polyline label=\"x\" points=\"1,1;2,2\"/>"), 0, "lines");
}

static void test_bad_input(void **state)
{
    (void)state;
    refused(labelme_read, "{\"shapes\": [\n,", "line 2");
    refused(labelme_read, "[]", "no \"shapes\"");
    refused(labelme_read, "{\"shapes\":[]}", "imageWidth");
    refused(labelme_read, "{\"shapes\":[],\"imageWidth\":16000000,\"imageHeight\":16000000}", "imageWidth");
    drops(labelme_read, LABELME("{\"label\":\"a\",\"points\":[[1,1],[2,2]],\"shape_type\":\"line\"}"), 0, "lines");
    drops(labelme_read, LABELME("{\"label\":\"a\",\"points\":[[1,1],[2,2]]}"), 0, "fewer than 3");
    drops(labelme_read, LABELME("{\"label\":\"a\",\"points\":[[1,1],[2,null],[3,3]]}"), 0, "without usable points");
    drops(labelme_read, LABELME("{\"points\":[[1,1],[2,2]],\"shape_type\":\"mask\",\"mask\":\"AAAA\"}"), 0, "decoded");
    refused(coco_annotations_read, "[]", "is this a COCO file");
    refused(coco_annotations_read, "{\"images\":[{\"id\":1}],\"annotations\":[]}", "image 1 has no file_name");
    drops(coco_annotations_read, COCO("\"image_id\":8,\"category_id\":0,\"bbox\":[1,1,2,2]"), 1, "images");
    drops(coco_annotations_read, COCO("\"image_id\":7,\"category_id\":5,\"bbox\":[1,1,2,2]"), 1, "categories");
    drops(coco_annotations_read, COCO("\"image_id\":7,\"category_id\":0"), 1, "neither");
    drops(coco_annotations_read, COCO("\"image_id\":7,\"category_id\":0,\"segmentation\":[[1,2,3,4]]"), 1, "polygon");
    drops(coco_annotations_read,
          COCO("\"image_id\":7,\"category_id\":0,\"segmentation\":{\"size\":[9,9],\"counts\":[80]}"), 1, "fill");
    refused(voc_read, "<annotation><size>", "broken XML, line 1");
    refused(voc_read, "<annotation/>", "is this a VOC file");
    drops(voc_read, "<annotation><size><width>9</width><height>9</height></size><object><name>a</name><bndbox><xmin>5"
                    "</xmin><ymin>1</ymin><xmax>2</xmax><ymax>3</ymax></bndbox></object></annotation>", 0, "corners");
    refused(yolo_read_names, "\n\n", "no names");
    refused(read_yaml, "names: [a, b", "broken YAML, line");
    refused(read_yaml, "names: {1: a, 0: b}", "that ascend");
    refused(read_yaml, "names: {99999999: a}", "0 to 30000");
}

/* Two classes, then lines that are none of theirs. */
static int read_labels(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    annotations_add_image(a, "x.jpg", 10, 10, err);
    annotations_category(a, "a", err);
    annotations_category(a, "b", err);
    return yolo_read(a, 0, data, size, name, err);
}

static void test_yolo(void **state)
{
    (void)state;
    annotations a = {0};
    drops(read_labels, "0 0.1 0.1 0.2 0.2\n\n2 0.1 0.1 0.2 0.2\n", 1, "without a name");
    drops(read_labels, "1 0 0 1 0 1 1 0.75\r\n0 x 0.1 0.2 0.2", 1, "no class");
    drops(read_labels, "-1 0.1 0.1 0.2 0.2", 0, "no class");
    static const char flow[] = "nc: 2\nnames: ['a b', c]\n", map[] = "names:\n  0: x\n  2: \"z\"\nother: 1\n",
                      list[] = "train: t\nnames:\n- p\n- 'q'\n";
    assert_int_equal(yolo_read_names(&a, flow, sizeof flow - 1, "f.yaml", NULL), SAMITE_OK);
    assert_string_equal(a.categories[0], "a b");
    assert_string_equal(a.categories[1], "c");
    annotations_free(&a);
    assert_int_equal(yolo_read_names(&a, map, sizeof map - 1, "f.yaml", NULL), SAMITE_OK);
    assert_int_equal(a.category_count, 3);
    assert_string_equal(a.categories[2], "z");
    annotations_free(&a);
    assert_int_equal(yolo_read_names(&a, list, sizeof list - 1, "f.yaml", NULL), SAMITE_OK);
    assert_string_equal(a.categories[1], "q");
    annotations_free(&a);
    assert_int_equal(yolo_read_names(&a, "one\ntwo\none\n", 12, "classes.txt", NULL), SAMITE_OK);
    assert_int_equal(a.category_count, 3);         /* numbers do not shift */
    annotations_free(&a);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/samite-annotations-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_boxes), cmocka_unit_test(test_rings),
        cmocka_unit_test(test_geojson), cmocka_unit_test(test_cvat), cmocka_unit_test(test_label_map),
        cmocka_unit_test(test_bad_input), cmocka_unit_test(test_bad_cvat), cmocka_unit_test(test_yolo),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
