/* page_files.h - the formats that results are written in, and the files of one picture or frame. */
#ifndef CLI_PAGE_FILES_H
#define CLI_PAGE_FILES_H

#include "options.h"

enum {
    FORMAT_COCO = 1, FORMAT_PNG = 2, FORMAT_OVERLAY = 4, FORMAT_YOLO = 8, FORMAT_LABELME = 16, FORMAT_GEOJSON = 32,
    FORMAT_CVAT = 64, FORMAT_VOC = 128, FORMATS_USUAL = FORMAT_COCO | FORMAT_PNG | FORMAT_OVERLAY
};
/* For an option: adds the formats of "coco,yolo" to the unsigned `to`. */
int parse_formats(void *to, const char *name, const char *value, samite_error *err);

/* FOLDER and the folders in it that the formats need. */
int  page_files_folders(const char *folder, unsigned formats, samite_error *err);
/* All files of a page but masks and overviews: FOLDER/NAME_labels.png, FOLDER/labels/NAME.txt and so on, with
 * FOLDER/data.yaml. `picture`: where GeoJSON looks for map coordinates, or NULL. */
int  page_files_write(const char *folder, unsigned formats, const char *name, const samite_page *page,
                      const char *picture, samite_error *err);
bool page_files_exist(const char *folder, unsigned formats, const char *name);
/* FOLDER/masks/NAME_NUMBER.png; NULL: out of memory. */
char *page_mask_path(const char *folder, const char *name, int64_t number);
/* CVAT takes one file for all pictures: FOLDER/NAME.json, a COCO file, becomes FOLDER/NAME.cvat.xml. */
int  cvat_from_coco(const char *coco, samite_error *err);

#endif
